// Package amd64 says what x86-64 machine code means: it decodes instructions,
// decides how each one is run away from its place, writes the code for it, and
// performs the control transfers itself.
//
// An instruction's length comes from the opcode maps of maps.go, its validity
// from golang.org/x/arch/x86/x86asm; both must agree. Where x86asm is known to
// be wrong or incomplete a row of corrections.go decides, with the section of
// the manual that says so. What neither vouches for is refused, so that a length
// is never guessed.
//
// "SDM" in this package is Intel's Software Developer's Manual (order number
// 325462), "APM" is AMD's Architecture Programmer's Manual (publication 40332).
//
// Known limits. The x87 unit saves the address of its last instruction; after a
// copy it is the copy's address, and fnstenv, fsave and xsave show it. The
// emulated calls and returns do not touch a shadow stack: a caller must not use
// them on a thread that has one enabled.
package amd64

// Package amd64 says what x86-64 machine code means: it decodes instructions, decides
// how each one is run away from its place, and performs the control transfers itself.
// Package code, which generates our code, and package jit use the registers and
// encodings defined here.
//
// An instruction's length comes from the opcode maps of maps.go, its validity
// from golang.org/x/arch/x86/x86asm; both must agree. Where x86asm is known to
// be wrong or incomplete a row of corrections.go decides, with the section of
// the manual that says so. What neither vouches for is refused, so that a length
// is never guessed.
//
// What of an instruction can be done elsewhere, and what can't, is told in doc.go.
//
// Not part of the public promise: any version may change it.
package amd64

// "SDM" in this package is Intel's Software Developer's Manual (order number
// 325462), "APM" is AMD's Architecture Programmer's Manual (publication 40332).
//
// What a copy leaves that tells where it stood is put right by Plan.Resume: the
// instruction pointer, a return address, the rcx of syscall. The x87 unit's last
// instruction pointer is the caller's to correct (Plan.Recorded).
//
// In a detour (arch.Detour) nobody puts anything right, so what Displaceable allows there
// leaves the same wherever it stands: direct branches lead to the original's targets, and
// calls push the original's return address. The processor sees a push and a jump there, and
// guesses wrong at the return.
//
// Known limits. A copied indirect call reads its operand after the push of the return
// address, not before it. If the operand is that very word, reached by another register
// than rsp, its value is a different one. The emulated calls and returns do not touch a
// shadow stack: a caller must not use them on a thread that has one enabled.

// Package reach finds out which bytes of a function are instructions. It is pure: code in, answers out.
//
// # The problem
//
// A symbol's size may take in data: constants, strings and tables behind a ret or a
// jump, as in hand-written assembly. A breakpoint there changes what the program reads.
// So "every instruction" means each one that a path of the function comes to, not each
// one that decodes behind another.
//
// # Paths
//
// Paths are followed from places that are surely executed: the function's entry, other
// entries that symbols and call-frame information name, landing pads of exceptions, and
// targets of branches from other functions. They go through direct branches.
//
// Everything else is a guess: that a call or a system call comes back, that an indirect
// jump uses a certain table, that an address in code or data is one of code. A guess is
// first tried apart. The path from there, up to the next guess, must decode and execute
// no improbable instruction. It must not run into the middle of a known instruction or
// off the function's end, and its branches must lead to code. If it does one of these,
// nothing of it is believed.
//
// # Where an indirect jump's targets are not known
//
// Then code that only it leads to is not told from data, and left alone too: a probe that is missing is counted and told, a probe in
// data makes the program wrong. Addresses within the function that words of the module's data hold (computed goto) are tried for such a jump.
package reach

// Package linux is what Linux has of x86-64 alone: how ptrace exchanges a thread's registers,
// the numbers of system calls, and what a program reads the time from.
//
// Requests of ptrace may be made by the tracer's thread only: the kernel answers ESRCH to every other one.
//
// Not part of the public promise: any version may change it.
package linux

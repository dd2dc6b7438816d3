// Package ptrace holds a live process: its threads, stops, signals, memory, and
// system calls made on its behalf.
//
// In a nutshell. A Tracer is one goroutine locked to one OS thread, the only one
// that issues ptrace requests. It blocks in wait4, decodes each wait status once
// into a Stop, asks the Handler what it means, and resumes the thread: the thread
// that waits is the thread that acts. Everybody else sends it closures with Do; a
// tiny traced child, the bell, makes wait4 return for them. There is no sleep and
// no polling loop.
//
// Locking: none. All methods except Tracer.Do, Space.ReadMemory and those that say
// so must be called on the tracer's thread, that is inside Do or a Handler method.
//
// Not part of the public promise: any version may change it.
package ptrace

// Threads are seized (PTRACE_SEIZE) and run on. A stop is one thread's affair; the
// others are not disturbed. Only Freeze stops all threads of an address space, and
// it gives them all back.
//
// An address space (Space) is the patch domain: a vfork child or a CLONE_VM clone
// runs the same bytes as its parent and belongs to the parent's Space until it
// execs. A forked child has its own copy and its own Space.

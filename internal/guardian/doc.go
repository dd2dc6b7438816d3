// Package guardian is a small process that outlives its parent, a tracer, and learns of
// its death at once. The package starts it, tells it of the held processes, and wakes
// it; a function of the caller then does the work.
//
// The tracer tells it by shared memory, the board, which both have mapped: which processes it holds, and which of its
// threads trace. To tell is to write some words. So it costs nothing, never waits, and stands there whenever the
// tracer is killed, be the guardian asleep, late, or another one by then.
//
// Three things wake it, the earliest first:
//
//   - a robust futex of the thread that traces. The kernel marks it, and wakes its
//     waiters, when the thread gives up its memory (exit_mm in kernel/exit.c). Only
//     afterwards it lets the threads go that the thread traces (exit_notify,
//     exit_ptrace);
//   - the end of a pipe whose other end the tracer's process has alone. That may come earlier or later: the files of a process
//     are closed by its last thread. It also comes when the program executes another one;
//   - the tracer's pidfd.
//
// A program that runs as its own guardian is executed a second time, by /proc/self/exe. It must have been told to expect that: see
// OptIn and Is.
package guardian

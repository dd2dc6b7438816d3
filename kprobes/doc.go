// Package kprobes places probes with the semantics of the kernel's kprobes in a live process.
//
//	ctx, stop := kprobes.Context() // ends on SIGINT and its like
//	defer stop()                   // puts everything back
//	s, err := kprobes.Attach(ctx, pid, kprobes.Options{})
//	…
//	err = s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "foo", PreHandler: handler})
//
// A Session holds one process. Handlers run on the session's thread, while the thread that
// hit is stopped and all others run. If main calls GuardianMain first, a second process puts the
// targets right when the program is killed; Recover does it later.
//
// CONFORMANCE.md has the kernel's names and rules beside ours.
package kprobes

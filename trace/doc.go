// Package trace prints, counts and follows calls of live processes: a SPEC says where, options say what is wanted of hits, and
// hits come as typed values, in their order.
//
//	ctx, stop := trace.Context()
//	defer stop()
//	t, err := trace.Attach(ctx, pid)
//	p, err := t.Probe("processCommand", trace.Args(), trace.Fetch("n=c->argc"), trace.If("n > 2"))
//	for hit := range p.Hits() {
//		fmt.Println(hit)
//	}
//
// The target never waits for who reads: hits that are not taken in time are counted as lost (Probe.Stats). Several processes are a Group.
// Handlers, and whatever changes a call, are package kprobes' (Session.Kprobes).
package trace

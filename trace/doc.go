// Package trace prints, counts and follows calls of live processes. A SPEC says where to probe, options say which values to fetch,
// and hits are typed values in their order.
//
//	ctx, stop := trace.Context()
//	defer stop()
//	t, err := trace.Attach(ctx, pid)
//	p, err := t.Probe("processCommand", trace.Args(), trace.Fetch("n=c->argc"), trace.If("n > 2"))
//	for hit := range p.Hits() {
//		fmt.Println(hit)
//	}
//
// The target never waits for the reader: hits that are not taken in time are counted as lost (Probe.Stats). A Group probes several processes.
// For handlers, and to change calls, use package kprobes (Session.Kprobes).
package trace

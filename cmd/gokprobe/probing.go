package main

import (
	"cmp"
	"context"
	"regexp"
	"slices"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// joint is what is done alike in several processes.
type joint interface {
	// join does it in one process more: all of it, or nothing.
	join(ctx context.Context, h *holding) error
	// leave ends it in processes that are about to be let go, and takes their last counts.
	leave(held []*holding)
	// complete begins it, when all processes that are meant have joined; others may come.
	complete(ctx context.Context, others bool) error
	// places is how many probes there are, in all processes.
	places() int
	// gone tells that nothing of it is left in a process, why, and that it will not come back.
	gone(h *holding) (why string, gone bool)
	// done is closed when nothing of it is left to do.
	done() <-chan struct{}
	// tell tells what became of it, together and by process, when all have been let go. Somebody else has disturbed probes so often; giveUp
	// ends the wait for a blocked output.
	tell(s *several, disturbed uint64, giveUp <-chan struct{}) error
}

// jointMaker begins what s does, with no process.
type jointMaker func(ctx context.Context, s *several) (joint, error)

// probing is the probes of a request in several processes.
type probing struct {
	req    request
	std    stdio
	group  trace.Group
	probes groupProbes // none without specs
}

// newProbing is a jointMaker.
func newProbing(ctx context.Context, s *several) (joint, error) {
	p := &probing{req: s.req, std: s.std}
	if err := s.record(); err != nil {
		return p, err
	}
	var q *trace.Queue
	if s.sink != nil {
		q = s.sink.queue
	}
	for _, a := range s.req.asks() {
		probe, err := p.group.Probe(ctx, a.specs, a.to(q)...)
		if err != nil {
			return nil, a.placedError(err)
		}
		p.probes = append(p.probes, probe)
	}
	return p, nil
}

func (p *probing) join(ctx context.Context, h *holding) error {
	h.tr = trace.On(h.sess, trace.With(p.req.options(p.std)), trace.Log(p.std.logger()), p.req.progress.of(h.sess))
	return placedError(p.group.Add(ctx, h.tr))
}

func (p *probing) leave([]*holding) {
	if len(p.probes) > 0 {
		_ = p.probes.stats() // of a process that has ended it stays what it is now
	}
}

func (p *probing) complete(context.Context, bool) error { return nil }

func (p *probing) places() (n int) {
	for _, at := range p.probes.byProcess() {
		n += len(at.Places)
	}
	return n
}

func (p *probing) gone(h *holding) (why string, gone bool) {
	return p.probes.gone(h.tr)
}

func (p *probing) done() <-chan struct{} {
	return p.probes.full()
}

func (p *probing) tell(s *several, disturbed uint64, giveUp <-chan struct{}) error {
	return s.tellRecords(p.summarize, disturbed, giveUp)
}

func (p *probing) summarize(sum *event.Summary) {
	if len(p.probes) == 0 {
		return
	}
	all := p.probes.stats()
	sum.Lost += all.Lost
	sum.Losses, sum.Skipped = losses(all, sum.Lost-all.Lost), skipped(all)
	sum.Probes, sum.Patterns = p.req.probeSummaries(all.Places), all.Patterns
	sum.Unoptimized = unoptimized(all.Places)
	for _, ps := range p.probes.byProcess() {
		sum.Processes = append(sum.Processes, event.ProcessSummary{
			PID: ps.PID, Comm: ps.Comm, Hits: ps.Hits, NMissed: ps.Missed, Lost: ps.Lost, Probes: p.req.probeSummaries(ps.Places),
		})
	}
}

func (r *request) probeSummaries(places []trace.PlaceStats) (all []event.ProbeSummary) {
	for _, at := range places {
		how := at.Mechanism.String()
		if at.Mechanism == kprobes.NoMechanism {
			how = missing(at.Waiting)
		}
		how, reason := r.explained(at.Mechanism, how, at.Reason)
		all = append(all, event.ProbeSummary{
			Probe: at.Place, Kind: at.Kind, Addr: at.Addr, Symbol: at.Symbol,
			Hits: at.Hits, NMissed: at.Missed, Misses: misses(at.Misses), Active: at.Active, Mechanism: how, Reason: reason,
		})
	}
	return all
}

// address is one in a reason, which is another at each place.
var address = regexp.MustCompile(`,? (at 0x[0-9a-f]+|\(0x[0-9a-f]+\))`)

// unoptimized is the places whose hits stop the thread, by why, the most first. It is empty if none of places is optimized, which is not told of as if
// it were an exception.
func unoptimized(places []trace.PlaceStats) (out []event.Loss) {
	n, some := map[string]uint64{}, false
	for _, at := range places {
		switch {
		case at.Mechanism == kprobes.Optimized:
			some = true
		case at.Mechanism != kprobes.NoMechanism && at.Reason != "":
			n[address.ReplaceAllString(at.Reason, "")]++
		}
	}
	for why, n := range n {
		if some {
			out = append(out, event.Loss{Reason: why, N: n})
		}
	}
	slices.SortFunc(out, func(a, b event.Loss) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Reason, b.Reason)) })
	return out
}

// misses is why hits were missed.
func misses(all kprobes.Misses) (out []event.Loss) {
	for why, n := range all {
		if n > 0 {
			out = append(out, event.Loss{Reason: kprobes.Miss(why).String(), N: n})
		}
	}
	return out
}

// Why records were lost.
const (
	tooFast  = "they came faster than gokprobe could read them"
	torn     = "their threads ended while they wrote them"
	unread   = "what is wanted of them could not be read there"
	notTaken = "the output did not take them"
)

// losses is why records were lost, of which the output has not taken so many.
func losses(st trace.Stats, byOutput uint64) (out []event.Loss) {
	var unfinished, elsewhere uint64
	for _, at := range st.Places {
		unfinished, elsewhere = unfinished+at.Torn, elsewhere+at.Unread
	}
	for _, l := range []event.Loss{
		{Reason: tooFast, N: st.Lost - min(unfinished+elsewhere, st.Lost)},
		{Reason: torn, N: unfinished},
		{Reason: unread, N: elsewhere},
		{Reason: notTaken, N: byOutput},
	} {
		if l.N > 0 {
			out = append(out, l)
		}
	}
	return out
}

// skipped is why places are not probed.
func skipped(st trace.Stats) (out []event.Loss) {
	for reason, n := range st.Skipped.All() {
		out = append(out, event.Loss{Reason: reason, N: uint64(n)})
	}
	return out
}

// lostBy is how many were lost for a reason.
func lostBy(all []event.Loss, reason string) (n uint64) {
	for _, l := range all {
		if l.Reason == reason {
			n += l.N
		}
	}
	return n
}

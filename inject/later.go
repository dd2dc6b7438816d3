package inject

import (
	"context"
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// errGoComes refuses Go functions that come later, if that would matter: where their arguments and results are is not looked up while a thread waits.
var errGoComes = errors.New("arguments and results of Go functions are not known in what comes later")

// come injects into what a pattern stands for in a library or program that has come. The fault's counters and limits go on. It runs on the tracer's thread.
//
// A probe is armed from the beginning if the fault is: nobody runs there yet. Others may start or stop the fault meanwhile, and change the probes that they see: so
// it looks again when they see the new ones.
func (f *Fault) come(ctx context.Context, c trace.Coming) (placed []trace.Place, err error) {
	on := f.isNeeded()
	has := f.others(c.Arrival)
	var fresh []*place
	for _, at := range c.Places {
		if has(at) {
			placed = append(placed, at)
			continue
		}
		p, err := f.newComing(at, c.Arrival, on)
		if err != nil {
			c.Skipped.Add(err)
			continue
		}
		fresh = append(fresh, p)
	}
	kept, err := trace.Register(ctx, fresh, f.registerAll, func(_ *place, err error) error { return c.Refuse(err) })
	f.places.Add(kept...)
	for _, p := range kept {
		placed = append(placed, p.Place)
	}
	if err == nil && f.isNeeded() != on {
		err = f.followArmed(ctx)
	}
	return placed, err
}

// newComing prepares a place that has come.
func (f *Fault) newComing(at trace.Place, in kprobes.Arrival, on bool) (*place, error) {
	p := &place{fault: f, Place: at, spot: atEntry, abi: values.ABIOf(in.Symbols, at.Addr)}
	goes := in.Symbols.GoFunction(at.Addr)
	if p.Waits = true; at.Symbol != "" {
		p.Addr = 0
	}
	err := p.prepare()
	switch {
	case err != nil:
		return nil, err
	case goes && (p.values != nil || f.rule.ends()):
		return nil, errGoComes
	}
	if on {
		p.kp.Flags = 0
	}
	return p, p.decide()
}

// does tells of a probe whether it is one of the fault's: at an address of several names calls are counted once, in each program.
func (f *Fault) does(kp *kprobes.Kprobe) bool {
	return slices.ContainsFunc(f.places.All(), func(p *place) bool { return p.kp == kp })
}

// others tells of a place whether another SPEC of the rule has it: its calls are counted once.
func (f *Fault) others(in kprobes.Arrival) (has func(trace.Place) bool) {
	if len(f.rule.specs()) < 2 {
		return func(trace.Place) bool { return false } // a pattern does so for itself
	}
	s, places := f.in.session, f.places.All()
	symbols, addrs := map[string]bool{}, map[arch.Addr]bool{}
	for i, st := range s.Statuses(kprobesOf(places)) {
		symbols[places[i].Symbol] = true
		if in.Main && st.Flags&kprobes.FlagGone == 0 {
			addrs[st.Addr] = true
		}
	}
	return func(at trace.Place) bool {
		if at.Symbol != "" && symbols[at.Symbol] {
			return true
		}
		entry, err := s.Entry(at.Addr)
		return in.Main && (addrs[at.Addr] || err == nil && addrs[entry])
	}
}

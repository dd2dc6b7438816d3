package trace

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// returns is what a point at a return has beside others.
type returns struct {
	rp kprobes.Kretprobe
	// entries has the values from the entries of calls, by the instance that follows the call. A later call of the
	// instance overwrites them. So there are at most MaxActive. They are used on the tracer's thread only.
	entries map[*byte]*callEntry
	calls   uint64 // so far
}

// callEntry is the arguments of one call. The number tells whether they are those of an
// instance's present call.
type callEntry struct {
	number uint64
	known  *known // nil if the wanted values can't be fetched there
	args   []Arg
}

// What a call's Data holds; behind it are the arguments that Fetch wants at the return. It is copied with the call into a forked child.
const (
	numberAt  = 0 // of the call
	entrySize = 8
)

// follow sets up pt's probe for handlers.
func (pt *point) follow() {
	p, ret := pt.probe, pt.ret
	ret.rp.DataSize, ret.entries = entrySize, map[*byte]*callEntry{}
	if pt.fetch != nil {
		ret.rp.DataSize += pt.fetch.Layout.KeptSize()
	}
	ret.rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		pt.entered(pt.there(regs), ri, regs)
		return 0
	}
	ret.rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		p.catchUp()
		h, err := pt.returned(ri, regs)
		switch {
		case err != nil:
			pt.unread.Add(1)
			p.session.warn("a return of %s is not printed: %v", pt.Name, err)
		case h == nil: // it is filtered out
		case p.record(h.Time, func() *Hit { return h }):
			pt.kept.Add(1)
		}
		return 0
	}
}

// entered remembers the arguments of a call.
func (pt *point) entered(k *known, ri *kprobes.KretprobeInstance, regs *kprobes.Regs) {
	ret := pt.ret
	binary.NativeEndian.PutUint64(ri.Data[numberAt:], 0) // that of an earlier call may be there
	if k == nil || len(k.params) > 0 || k != pt.known.Load() {
		ret.calls++
		e := &callEntry{number: ret.calls, known: k}
		if k != nil && len(k.params) > 0 {
			e.args = arguments(k.params, regs)
		}
		ret.entries[&ri.Data[0]] = e
		binary.NativeEndian.PutUint64(ri.Data[numberAt:], ret.calls)
	}
	if k == nil {
		return
	}
	if pt.fetch != nil {
		k.fetch.Layout.Keep(ri.Data[entrySize:], regs, regs)
	}
}

// returned is the hit of a return, nil if it does not meet the filter.
func (pt *point) returned(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) (*Hit, error) {
	k := pt.known.Load()
	e := pt.ret.entry(ri)
	if e != nil { // the table may be another one by now: the process has loaded something, or was forked in the call
		k = e.known
	}
	if pt.isBlind(k) {
		pt.unread.Add(1)
		return nil, nil
	}
	h := pt.newHit(k, regs)
	h.took(ri.Took())
	if e != nil {
		h.Args = e.args
	}
	if k.typed {
		h.Results = arguments(k.results, regs)
	}
	h.Ret = returnWord(regs.ReturnValue(), k.results, k.typed)
	fetched, err := k.fetched(regs, fetch.Kept(ri.Data[entrySize:]))
	if err != nil {
		return nil, err
	}
	if !k.fetch.KeepsAt(regs, regs, fetched, h.Comm, h.TID, returnValues(h)...) {
		return nil, nil
	}
	h.Args = pt.withGo(pt.withFetched(h.Args, k.fetch, fetched, arguments(k.fetch.Whole(), regs)), regs)
	h.Globals = pt.globals(k.fetch, regs, regs)
	pt.addState(h, regs, regs.IP())
	return h, nil
}

func (h *Hit) took(t kprobes.Took) { h.Duration, h.Stops, h.DurationMin = &t.Time, t.Stops, t.Min }

// entry returns the values from the entry of ri's call. In a forked child these are the parent's.
func (ret *returns) entry(ri *kprobes.KretprobeInstance) *callEntry {
	number := binary.NativeEndian.Uint64(ri.Data[numberAt:])
	if number == 0 {
		return nil
	}
	if e := ret.entries[&ri.Data[0]]; e != nil && e.number == number {
		return e
	}
	for _, e := range ret.entries {
		if e.number == number {
			return e
		}
	}
	return nil
}

// returnWord is the number that a call has returned; v is the value of the register for results. It is nil if the function's results are typed, and
// none is a number.
func returnWord(v uint64, results []symbols.Param, typed bool) *int64 {
	n := int64(v)
	switch {
	case !typed:
	case len(results) == 0 || !results[0].Whole():
		return nil
	default:
		n = results[0].Integer(v)
	}
	return &n
}

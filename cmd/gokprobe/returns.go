package main

import (
	"encoding/binary"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// returnProbe is what a probe at a return has beside others.
type returnProbe struct {
	rp      kprobes.Kretprobe
	results []symbols.Param
	typed   bool // results is what the function returns
	// entries are what is remembered of calls by the instances that follow them, which
	// are not more than MaxActive; a later call of an instance overwrites.
	entries map[*byte]*callEntry
	calls   uint64 // so far
	late    uint64 // returns after the limit
}

// callEntry is the arguments of one call. The number tells whether they are those of an
// instance's present call.
type callEntry struct {
	number uint64
	args   []event.Arg
}

// What a call's Data holds; behind it are the arguments that -arg wants at the return. It is copied with the call into a forked child.
const (
	startedAt = 0 // nanoseconds since the recorder began
	numberAt  = 8 // of the call
	entrySize = 16
)

// follow fills in p.ret's handlers and what they need, nothing if the session's own
// count is all that is wanted.
func (r *recorder) follow(p *probe, maxActive int) {
	ret := p.ret
	ret.rp.MaxActive = maxActive
	if r.sink == nil && !r.limited && !p.waits && !p.filtered() {
		return
	}
	ret.rp.DataSize, ret.entries = entrySize, map[*byte]*callEntry{}
	if p.fetch != nil {
		ret.rp.DataSize += 8 * p.fetch.Layout.Saved()
	}
	ret.rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		r.notice(p)
		r.entered(p, ri, regs)
		return 0
	}
	ret.rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		r.catchUp()
		h, err := r.returned(p, ri, regs)
		switch {
		case err != nil:
			r.warn("a return of %s is not printed: %v", p.name, err)
		case h == nil: // it is filtered out
		case r.record(func() *event.Hit { return h }):
			p.keep()
		default:
			ret.late++
		}
		return 0
	}
}

// entered remembers the time and the arguments of a call.
func (r *recorder) entered(p *probe, ri *kprobes.KretprobeInstance, regs *kprobes.Regs) {
	ret := p.ret
	if len(p.params) > 0 {
		ret.calls++
		ret.entries[&ri.Data[0]] = &callEntry{ret.calls, arguments(p.params, regs)}
		binary.NativeEndian.PutUint64(ri.Data[numberAt:], ret.calls)
	}
	if p.fetch != nil {
		putWords(ri.Data[entrySize:], p.fetch.Layout.Save(regs, regs))
	}
	binary.NativeEndian.PutUint64(ri.Data[startedAt:], uint64(time.Since(r.began)))
}

// returned is the record of a return, nil if it does not meet the filter.
func (r *recorder) returned(p *probe, ri *kprobes.KretprobeInstance, regs *kprobes.Regs) (*event.Hit, error) {
	ended := time.Since(r.began)
	h := r.newHit(p, regs)
	duration := ended - time.Duration(binary.NativeEndian.Uint64(ri.Data[startedAt:]))
	h.Duration = &duration
	h.Args = p.ret.args(ri)
	if p.ret.typed {
		h.Results = arguments(p.ret.results, regs)
	}
	h.Ret = returnWord(regs.ReturnValue(), p.ret.results, p.ret.typed)
	values, err := r.fetched(p, regs, getWords(ri.Data[entrySize:]))
	if err != nil {
		return nil, err
	}
	if !p.fetch.keeps(values, h.Comm, h.TID, returnValues(h)...) {
		return nil, nil
	}
	h.Args = p.fetch.appendTo(h.Args, values)
	r.addState(h, p, regs, regs.IP())
	return h, nil
}

// args is what was remembered of ri's call. In a forked child it is the parent's.
func (ret *returnProbe) args(ri *kprobes.KretprobeInstance) []event.Arg {
	number := binary.NativeEndian.Uint64(ri.Data[numberAt:])
	if e := ret.entries[&ri.Data[0]]; e != nil && e.number == number {
		return e.args
	}
	for _, e := range ret.entries {
		if e.number == number {
			return e.args
		}
	}
	return nil
}

package main

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	prog "github.com/gokprobe/gokprobe/program"
)

// Registers of a return's record beside those that results are in.
var returnRegister = host.C.Results[0]

const durationRegister = "duration" // kprobes.Kretprobe.KP

// returnsInTarget has p's returns recorded by the target, if that is all that is wanted of them.
func (pl *placer) returnsInTarget(p *probe) bool {
	r, ret := pl.rec, p.ret
	if pl.req.noOptimize || pl.req.noBoost || r.sink == nil || r.limited || p.waits || p.stack > 0 || p.args ||
		p.fetch != nil && p.fetch.Layout.Saved() > 0 {
		return false
	}
	names := []string{returnRegister, durationRegister}
	if p.regs {
		names = append(host.Arch.NewRegs().Names(), durationRegister)
	}
	results, err := pl.sess.Symbols().Results(p.addr)
	typed := err == nil
	c, err := newCapture(names, results)
	if err == nil {
		c.addFetching(p.fetch)
		err = c.build(p.name, prog.Map{Kind: prog.Ring, Size: prog.MaxRecord * 8})
	}
	if err != nil {
		return false
	}
	p.capture, ret.results, ret.typed = c, results, typed
	r.inTarget = true
	ret.rp.MaxActive = pl.req.maxActive
	p.kp.Program, p.kp.RecordHandler = c.program, r.recordedReturn(p)
	return true
}

// recordedReturn is the RecordHandler of p.
func (r *recorder) recordedReturn(p *probe) kprobes.RecordHandler {
	return func(_ *kprobes.Kprobe, rec *kprobes.HitRecord) {
		r.notice(p)
		s := p.capture.decode(rec.Payload)
		if s == nil {
			return
		}
		h := r.returnOf(p, rec, s)
		values := p.capture.values(rec.Payload, r.host(rec.Comm))
		if !p.fetch.keeps(values, rec.Comm, rec.TID, returnValues(h)...) {
			return
		}
		h.Args = append(p.fetch.appendTo(nil, values), h.Args...)
		p.keep()
		r.record(func() *event.Hit { return h })
	}
}

// returnOf is a recorded return as it is printed.
func (r *recorder) returnOf(p *probe, rec *kprobes.HitRecord, s *snapshot) *event.Hit {
	h := &event.Hit{
		Time: rec.Time, PID: rec.PID, TID: rec.TID, Comm: rec.Comm,
		Probe: p.name, Kind: p.kind(), Addr: p.kp.Addr, Symbol: p.symbol, Module: p.module,
	}
	ticks, _ := s.Get(durationRegister)
	duration := r.sess.Elapsed(ticks)
	v, _ := s.Get(returnRegister)
	if p.ret.typed {
		h.Results = argumentsFrom(p.capture.params, s, s)
	}
	h.Duration, h.Ret = &duration, returnWord(v, p.capture.params, p.ret.typed)
	if p.regs {
		ip, _ := s.Get(host.Roles.IP)
		h.Args = appendRegs(h.Args, withoutDuration{s}, arch.Addr(ip))
	}
	return h
}

// withoutDuration is a snapshot's registers that the processor has.
type withoutDuration struct{ *snapshot }

// Names implements arch.Regs.
func (s withoutDuration) Names() []string {
	return slices.DeleteFunc(slices.Clone(s.snapshot.Names()), func(n string) bool { return n == durationRegister })
}

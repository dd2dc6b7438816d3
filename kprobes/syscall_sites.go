package kprobes

import (
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
	"github.com/gokprobe/gokprobe/symbols"
)

// placeBySites places sp at the sites that chosen names. The error says why that can't be.
func (sc *syscallProbes) placeBySites(sp *SyscallProbe, chosen func(procfs.Mapping) bool) error {
	d := sc.s.mainDomain()
	if d == nil {
		return ErrExited
	}
	defer sc.s.registry.looking()()
	sites, gaps, err := d.look.callSites(chosen)
	if err != nil {
		return err
	}
	if why := syscallsites.Describe(gaps, sp.Numbers); why != "" {
		return fmt.Errorf("%w: %s", ErrIncomplete, why)
	}
	var kps []*Kprobe
	for _, site := range sites {
		if err := sc.s.heed.wanted(); err != nil {
			return err
		}
		if site.Number < 0 || slices.Contains(sp.Numbers, site.Number) {
			kp, err := sc.probeSite(sp, site)
			if err != nil {
				return err
			}
			kps = append(kps, kp)
		}
	}
	if len(kps) == 0 {
		return nil
	}
	if err := sc.s.RegisterKprobes(sc.s.heed.context(), kps); err != nil {
		return err
	}
	sp.kps = append(sp.kps, kps...)
	sp.counts(kps)
	return nil
}

// probeSite is the Kprobe of sp at a site.
func (sc *syscallProbes) probeSite(sp *SyscallProbe, site syscallsites.Site) (*Kprobe, error) {
	if sp.Exit != nil {
		site.At, site.Loads = site.Insn, nil
	}
	kp := &Kprobe{Addr: site.At, Flags: sp.own.Flags & FlagDisabled, forCalls: true}
	kp.PreHandler = func(kp *Kprobe, r *Regs) int { return sc.atCallSite(sp, &site, kp, r) }
	if sp.Exit != nil {
		kp.PostHandler = func(_ *Kprobe, r *Regs, _ uint64) {
			if ts := r.state(); ts != nil {
				sc.leaveSyscall(ts, sp)
			}
		}
	}
	return kp, sp.chooseAt(kp, &site)
}

// top is what the session remembers of the thread: while that is in a function that a handler has called, what concerns that.
func (r *Regs) top() *threadState { return r.domain.session.hits.states.Of(r.thread) }

// state is what the session remembers of the thread whose handler has r, nil if that is no handler's.
func (r *Regs) state() *threadState {
	ts := r.top()
	for ts != nil && ts != r.hit {
		ts = ts.outer
	}
	return ts
}

// atCallSite runs the Enter of sp for a thread at a site. The registers become those in
// front of the system-call instruction. If Enter changes nothing, they get their old
// values back.
func (sc *syscallProbes) atCallSite(sp *SyscallProbe, site *syscallsites.Site, kp *Kprobe, r *Regs) (diverted int) {
	ts := r.state()
	if ts == nil {
		return 0
	}
	before := r.Regs.Clone()
	again := ts.changedCall() // by another SyscallProbe: the thread stands in front of the instruction
	if !again && !site.Load(host.Arch, r.Regs, rawMemory{r}) {
		r.CopyFrom(before) // a fault, which the program is told of when it comes there
		return 0
	}
	r.SetIP(site.Insn)
	if !again {
		ts.number = int(r.ReturnValue())
	}
	if !slices.Contains(sp.Numbers, ts.number) {
		r.CopyFrom(before)
		return 0
	}
	seen := r.Regs.Clone()
	switch made := sc.enterSyscall(ts, sp, kp.Program != nil && !again); {
	case ts.over:
		return 0
	case !made:
		ts.changed = 0
		host.Arch.SkipCall(r.Regs, site.Insn)
		return 1
	case r.Same(seen):
		r.CopyFrom(before)
		return 0
	}
	ts.changed = ts.hit
	if site.At != site.Insn {
		r.SetIP(site.Insn)
		return 1
	}
	r.SetTrapped(kp.Addr)
	return 0
}

// changedCall tells that a SyscallProbe has changed the call of the hit: the registers are those in front of it already.
func (ts *threadState) changedCall() bool { return ts.changed == ts.hit }

// callsCame places the probes on system calls in modules that were loaded.
func (sc *syscallProbes) callsCame(came []*symbols.Module) {
	within := func(m procfs.Mapping) bool { return contains(came, m.Range.Start) != nil }
	for _, sp := range sc.all {
		if sp.way != SyscallBySites {
			continue
		}
		err := sc.placeBySites(sp, within)
		switch {
		case err == nil:
		case sp.By == SyscallBySites:
			sc.s.warn("%s is not probed in a library that was loaded: %v", sp.name(), err)
		default:
			sc.s.warn("%s is probed by ptrace from now on: %v", sp.name(), sc.changeWay(sp, err))
		}
	}
}

// changeWay switches sp to stops from now on; why is the reason.
func (sc *syscallProbes) changeWay(sp *SyscallProbe, why error) error {
	kps := sp.kps
	if sp.own.checked != nil {
		for d := range sc.s.settled() {
			d.recorder.keepState(&sp.own) // which goes on where they end
		}
	}
	sp.kps, sp.way, sp.why = nil, SyscallByStops, why.Error()
	if err := sc.stopAtSyscalls(); err != nil {
		return fmt.Errorf("%w, and not even by that: %w", why, err)
	}
	if err := sc.s.registry.unregister(kps); err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	return why
}

package kprobes

import (
	"bytes"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// A hit. The thread that reached a site has trapped and is stopped; all others run.
// Its registers are read once, handlers change them in place, and they are written
// back when it is resumed:
//
//	site:  int3 ── stop ── PreHandlers ─┬─ boosted: IP = slot.Boost ─ copy ─ jmp back
//	                                    ├─ stepped: IP = slot.Step ─ copy ─ int3 ── stop
//	                                    │           PostHandlers, IP = slot.Next
//	                                    ├─ emulated: the tracer does it, PostHandlers
//	                                    ├─ traced: IP = slot.Step ─ copy ── stop by TF
//	                                    │           Resume, PostHandlers
//	                                    └─ system call: IP = slot.Step ─ copy ── stop in
//	                                                the kernel, Resume ─ the call ─┬─
//	                                                                 stop, PostHandlers
//
// The original bytes never come back during a hit, so no other thread can slip
// through. What runs an instruction, and where a thread may be seen meanwhile, is told
// in hit_proceed.go.

// hits is what a session does about threads that reach sites.
type hits struct {
	s      *Session
	states ptrace.Kept[threadState]
	count  uint64 // all of them so far

	untilSample int // hits of sites where calls are timed
}

// Breakpoint implements ptrace.Handler.
func (s hooks) Breakpoint(th *ptrace.Thread) ptrace.Verdict {
	defer s.heirs.within()()
	d := s.domainOf(th)
	if d == nil {
		return ptrace.NotOurs()
	}
	regs, err := th.Regs()
	if err != nil {
		return ptrace.AsTold() // killed meanwhile
	}
	at := regs.Trapped()
	if st := d.siteAt(at); st != nil && st.armed() {
		return s.hits.hit(th, d, st, regs)
	}
	if st := d.slots.slotSite(at); st != nil && at == st.slot.Trap {
		return s.hits.stepped(th, d, st, regs)
	}
	if v, ours := s.hits.inDetour(th, d, at, regs); ours {
		return v
	}
	if d.vanished(at, regs) || d.neighbours.atTorn(at, regs) || d.neighbours.strayed(th, at, regs, nil) || d.neighbours.copied(th, at, regs, nil) {
		return ptrace.AsTold()
	}
	return ptrace.NotOurs()
}

// Known implements ptrace.Handler.
func (s hooks) Known(th *ptrace.Thread, at arch.Addr) (ours bool, length int) {
	d := s.alike(th.Proc.Space)
	if d == nil {
		return false, 0
	}
	if insn, ok := d.past.insns[at]; ok {
		return true, len(insn)
	}
	if at == d.detours.landing && at != 0 {
		return true, host.Arch.MaxInsnLen()
	}
	if st := d.slots.slotSite(at); st != nil && at == st.slot.Trap {
		return true, host.Arch.MaxInsnLen() // nothing else leads there
	}
	if _, torn := d.neighbours.torn[at]; torn || d.neighbours.strays[at] != nil || d.upcalls.knownUpcall(at) || d.detours.knownTrap(at) {
		return true, host.Arch.MaxInsnLen()
	}
	return false, 0
}

// vanished tells whether the breakpoint at at was one of ours and is gone: then the
// original instruction runs now (B10).
func (d *domain) vanished(at arch.Addr, regs arch.Regs) bool {
	insn, ours := d.past.insns[at]
	if !ours {
		insn, ours = d.former[at]
	}
	if !ours {
		return false
	}
	now := make([]byte, len(insn))
	if d.space.Text().ReadMemory(at, now) != nil {
		return false
	}
	if d.text.Overlay(at, now); !bytes.Equal(now, insn) {
		return false // the program has other code there now, or somebody else a breakpoint
	}
	regs.SetIP(at)
	return true
}

// hit runs the PreHandlers and sends the thread through the instruction.
func (hs *hits) hit(th *ptrace.Thread, d *domain, st *site, regs arch.Regs) ptrace.Verdict {
	ts := hs.stateOf(th, d)
	hs.count++
	ts.regs.Regs, ts.site, ts.hit = regs, st, hs.count
	if !ts.resumed(th, st, regs) && hs.newHit(ts, d, st) {
		ts.site = nil
		return ts.hasLeft(regs)
	}
	if d.released || ts.over {
		return ptrace.AsTold() // a handler closed the session: the thread is gone already
	}
	if d.slots.at[st.slot.Addr] != st {
		regs.SetIP(st.addr) // the handlers removed the site: its original code is back
		ts.site = nil
		return ts.hasLeft(regs)
	}
	if ts.leaving != nil { // the signal comes behind the instruction
		v, _ := hs.passFirst(th, d, st, regs)
		return v
	}
	if st.jump() != nil {
		regs.SetIP(st.jump().Start()) // as the kernel's setup_detour_execution
		ts.site = nil
		return ptrace.IntoCopy()
	}
	return hs.proceed(th, ts, st, regs)
}

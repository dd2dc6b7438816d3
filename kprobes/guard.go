package kprobes

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// The guard: what becomes of the target when the tracer is killed.
//
// Its breakpoints stay then, and nobody waits for them. So from the first breakpoint to the last
// the process's action for SIGTRAP is a handler in the injected region (arch.Guards). It
// looks the address up in the region's resume table and sends the thread to the copy of the
// instruction, in the site's slot. What it does not find there is the program's own, and gets the
// program's own action. While the tracer lives the kernel tells it of the signal first,
// and the handler runs for the program's own SIGTRAPs only.
//
// Stops that the tracer has seen, but not ended, when it is killed: see ptrace/reap.go.
//
// A program that uses SIGTRAP itself has the guard in front of its own action (guard_trapaction.go), unless its handler is to run once only. One that uses
// another of these signals gets no guard for it: the tracer alive comes before the tracer dead.
//
// What it can't do: a thread that blocks SIGTRAP is killed at a breakpoint, so threads are kept from that where they only want to be
// left alone (guard_masksites.go), and the program's handler of SIGTRAP runs with that not blocked; where no memory could be mapped there is no guard.
type guard struct {
	state trampoline.GuardState
	tried bool // there is one, or there can be none
	// incomplete: what it knows is not all, since no thread could make a system call; see VforkEnded.
	incomplete bool
	none       bool // there can be none: the program's handler of SIGTRAP is to run once only
	waited     bool // for a call of vfork(2) that goes on; see outsideVfork

	language int // of the program's runtime; 0: not asked yet

	noted []ptrace.Sigset // in the region, see noteUnblocked

	masksSeen time.Time // when the program's handlers were looked at
}

// has tells whether the action of sig is the guard's.
func (g *guard) has(sig unix.Signal) bool { return g.state.Installed>>uint(sig)&1 != 0 }

// guardSites makes sure that threads which come to sites about to be armed go on without
// the tracer too. What can't be is left: the tracer does not need it.
func (d *domain) guardSites(sites []*site) {
	if d.private || len(sites) == 0 {
		return
	}
	if d.guard.none {
		return
	}
	for _, st := range sites {
		if st.slot.Alone != 0 {
			d.setResume(st.addr, st.slot.Alone)
			d.setResume(st.slot.Trap, st.slot.Next)
		}
	}
	if !d.guard.tried {
		d.installGuard(sites)
	} else {
		_ = d.keepUnblocked(sites, false, func() error { return nil })
	}
}

// installGuard is tried again when a process that is inside vfork(2), or that a child has left meanwhile, comes out of it.
func (d *domain) installGuard(sites []*site) {
	d.guard.tried = true
	switch err := d.addGuard(sites); {
	case errors.Is(err, ptrace.ErrNoThread), ptrace.Departed(err):
		d.guard.tried, d.guard.incomplete = false, true
	case errors.Is(err, ptrace.ErrOnce):
		d.guard.none = true
	case err != nil && !errors.Is(err, ptrace.ErrSeccomp):
		d.session.warn("the process won't survive if gokprobe is killed: %v", d.unlessEnding(err))
	}
}

// setResume tells the guard where threads go on.
func (d *domain) setResume(at, to arch.Addr) {
	err := d.region.SetResume(at, to)
	d.guard.incomplete = d.guard.incomplete || errors.Is(err, ptrace.ErrNoThread)
}

// unguard says that the original instruction is back at at: a thread that trapped before goes on there.
func (d *domain) unguard(at arch.Addr) {
	if d.guard.tried && !d.private && !d.guard.none {
		d.setResume(at, at)
	}
}

func (d *domain) addGuard(sites []*site) error {
	if d.guard.state.Handler == 0 {
		state, err := d.region.AddGuard()
		if err != nil {
			return err
		}
		d.guard.state = state
	}
	if err := d.guardSignal(unix.SIGTRAP); err != nil {
		return err
	}
	if !d.guard.has(unix.SIGTRAP) {
		return nil
	}
	place := d.guard.state.Place
	insn := place.Trap.Add(int64(-len(host.Arch.SyscallInsn())))
	d.space.Protect(insn, place.SavedContext())
	return d.keepUnblocked(sites, true, d.unmaskAll)
}

// guardSignal makes the guard the action of sig.
func (d *domain) guardSignal(sig unix.Signal) error {
	g := &d.guard
	if g.state.Handler == 0 || g.has(sig) || sig != unix.SIGTRAP && d.owns(sig) {
		return nil
	}
	p, code := g.state.Place, d.guardHandler(sig)
	note := func() error { // before it is so: else whoever recovers the process would not put the action back
		g.state.Installed |= 1 << uint(sig)
		return d.region.NoteGuard(g.state)
	}
	for _, proc := range d.space.Processes() { // some share the memory only
		err := proc.Remote(func(r *ptrace.Remote) error {
			return r.Guard(sig, code, p.SavedAction(int(sig)), p.ScratchAction(), note)
		})
		if err != nil && (proc == d.session.main || !errors.Is(err, ptrace.ErrNoThread) && !ptrace.Departed(err)) {
			g.state.Installed &^= 1 << uint(sig)
			return errors.Join(err, d.region.NoteGuard(g.state))
		}
	}
	return nil
}

// guardHandler is the guard as the action of sig. Goroutines' stacks have no room for a signal's frame.
func (d *domain) guardHandler(sig unix.Signal) ptrace.GuardHandler {
	s := d.guard.state
	return ptrace.GuardHandler{Handler: s.Handler, Restorer: s.Restorer, OnStack: d.handles(sig) && d.runsGo()}
}

// handles tells whether the program has a handler for sig now, as far as is known.
func (d *domain) handles(sig unix.Signal) bool {
	tid, err := d.space.TID()
	if err != nil {
		return true
	}
	st, err := procfs.ReadStatus(tid, 0)
	return err != nil || st.SigCgt.Has(int(sig))
}

// owns tells whether the program itself has a use for sig: it ignores it or handles it, other than
// by Go's handler of all signals. Then the guard would be in the way, as long as the tracer lives.
func (d *domain) owns(sig unix.Signal) bool {
	tid, err := d.space.TID()
	if err != nil {
		return true
	}
	st, err := procfs.ReadStatus(tid, 0)
	if err != nil || st.SigIgn.Has(int(sig)) {
		return true
	}
	return st.SigCgt.Has(int(sig)) && !d.runsGo()
}

// runsGo tells whether the process has Go's handler of signals.
func (d *domain) runsGo() bool {
	if d.guard.language == 0 {
		d.guard.language = notGo
		if len(d.symbols().Symbols("runtime.sigtramp*")) > 0 {
			d.guard.language = isGo
		}
	}
	return d.guard.language == isGo
}

const (
	notGo = 1 + iota
	isGo
)

// leaveGuard takes a stopped thread out of the guard, back to where the signal that it handles
// has found it: that is on its stack, and the kernel takes it from there. It may be in a copy then.
func (d *domain) leaveGuard(th *ptrace.Thread) {
	stepped := false
	for left := d.stepped(); ; stepped = true {
		regs, err := th.Regs()
		if err != nil || !d.guard.state.Code.Contains(regs.IP()) || !left.Step(d.space, th, regs.IP()) {
			break
		}
	}
	if stepped {
		th.RunFree()
		_ = th.EndStep() // its end follows
	}
}

// guardTrap is guardDetour for the breakpoint in front of det's body.
func (d *domain) guardTrap(det *detour) {
	if d.guard.tried && !d.private && !d.guard.none {
		d.setResume(det.Trap, det.Start())
	}
}

// guardDetour is guardSites for what a jump leads to.
func (d *domain) guardDetour(det *detour) {
	if !d.guard.tried || d.private || d.guard.none {
		return
	}
	for _, h := range det.heads {
		if to, ok := det.CopyOf(h); ok {
			d.setResume(h, to)
		}
	}
	if det.raisesIllegal() {
		d.guardAlso(unix.SIGILL)
	}
	for _, stop := range det.Stops {
		d.setResume(stop.At, stop.To)
		if stop.Why.Faults() {
			d.guardAlso(unix.SIGSEGV)
			d.guardAlso(unix.SIGBUS)
		}
	}
}

func (d *domain) guardAlso(sig unix.Signal) {
	if err := d.guardSignal(sig); err != nil && !errors.Is(err, ptrace.ErrNoThread) {
		d.session.warn("the process may not survive if gokprobe is killed: %v", d.unlessEnding(err))
	}
}

// cleanRegion takes the guard and the region away from a forked child. What can't be done
// harms nobody.
func (d *domain) cleanRegion(child *ptrace.Process) {
	ranges := d.mapped()
	if len(ranges) == 0 {
		return
	}
	_ = child.Space.Remote(func(r *ptrace.Remote) error {
		if err := recovery.RemoveGuard(r, &d.guard.state); err != nil {
			return err
		}
		return r.Munmap(ranges...)
	})
}

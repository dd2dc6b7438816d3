package kprobes

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/guardian"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// The guard protects the target when the tracer is killed.
//
// Its breakpoints stay then, and nobody waits for them. So from the first breakpoint to
// the last the process's action for SIGTRAP is a handler in the injected region
// (arch.Guards). It looks the address up in the region's resume table and sends the
// thread to the copy of the instruction, in the site's slot. A signal from any other
// place is the target's own, and gets the target's own action. While the tracer lives
// the kernel tells it of the signal first, and the handler runs for the program's own
// SIGTRAPs only.
//
// Stops that the tracer has seen, but not ended, when it is killed: see ptrace/reap.go.
//
// A program that uses SIGTRAP itself has the guard in front of its own action (guard_sigaction.go), unless its handler is to run once only. One that uses
// another of these signals gets no guard for it: the tracer alive comes before the tracer dead.
//
// It has limits. A thread that blocks SIGTRAP is killed at a breakpoint. So threads
// that block all signals are kept from blocking that one (guard_masksites.go), and the
// target's handler of SIGTRAP runs without blocking it. If no memory could be mapped
// there is no guard.
type guard struct {
	d     *domain
	told  *guardian.Hold
	state trampoline.GuardState
	tried bool // there is one, or there can be none
	// incomplete is set if the guard lacks facts, since no thread could make a system
	// call; see VforkEnded.
	incomplete bool
	whole      bool // all of it was installed
	short      bool // it does not know all places, and that was told
	unlooked   bool // a forked child has it from its parent, and its thread's mask was not looked at yet
	none       bool // there can be none: the program's handler of SIGTRAP is to run once only
	waited     bool // for a call of vfork(2) that goes on; see outsideVfork

	language int // of the program's runtime; 0: not asked yet

	noted []ptrace.Sigset // in the region, see noteUnblocked

	masksSeen time.Time // when the program's handlers were looked at
}

// has tells whether the action of sig is the guard's.
func (g *guard) has(sig unix.Signal) bool { return g.state.Installed>>uint(sig)&1 != 0 }

// guardSites makes sure that threads which come to sites about to be armed go on
// without the tracer too. Actions that can't be changed are left: the tracer does not
// need that.
func (g *guard) guardSites(sites []*site) {
	if g.d.memory.private || len(sites) == 0 {
		return
	}
	if g.d.guard.none {
		return
	}
	g.guardSlots(sites)
	if !g.d.guard.tried {
		g.installGuard(sites)
	} else {
		_ = g.d.masks.keepUnblocked(sites, g.unlooked, func(*ptrace.Frozen) error { return nil })
		g.unlooked = false
	}
}

// guardSlots sends threads that trap at sites to the slots.
func (g *guard) guardSlots(sites []*site) {
	if g.d.memory.private || g.d.guard.none {
		return
	}
	for _, st := range sites {
		if st.slot.Alone != 0 {
			g.setResume(st.addr, st.slot.Alone)
			g.setResume(st.slot.Trap, st.slot.Next)
		}
	}
}

// takeOver makes g the guard of a forked child, which the child has kept. Calls are protected when the child gets its memory: it may have taken the guard's action since. What the program's handlers block was changed in the parent: a new one is found as
// there (GuardLost).
func (g *guard) takeOver(parent *guard) {
	g.state, g.tried, g.whole, g.unlooked = parent.state, true, true, true
	g.noted, g.masksSeen, g.language = slices.Clone(parent.noted), parent.masksSeen, parent.language
}

// protectCalls gives the guard to threads that make system calls for us.
func (g *guard) protectCalls() { g.protectCallsOf(g.d.space) }

// protectCallsOf is that for another address space which has it.
func (g *guard) protectCallsOf(space *ptrace.Space) {
	place := g.state.Place
	space.Protect(place.Trap.Add(int64(-len(host.Arch.SyscallInsn()))), place.SavedContext())
}

// installGuard is tried again when a process that is inside vfork(2), or that a child has left meanwhile, comes out of it.
func (g *guard) installGuard(sites []*site) {
	g.d.guard.tried = true
	err := g.addGuard(sites)
	g.whole = err == nil
	switch {
	case errors.Is(err, ptrace.ErrNoThread), ptrace.Departed(err):
		g.d.guard.tried, g.d.guard.incomplete = false, true
	case errors.Is(err, ptrace.ErrOnce):
		g.d.guard.none = true
	case err != nil && !errors.Is(err, ptrace.ErrSeccomp):
		g.d.session.warn("the process won't survive if gokprobe is killed: %v", g.d.unlessEnding(err))
	}
}

// setResume tells the guard where threads go on.
func (g *guard) setResume(at, to arch.Addr) {
	switch err := g.d.region.SetResume(at, to); {
	case err == nil, errors.Is(err, ptrace.ErrSeccomp):
	case errors.Is(err, ptrace.ErrNoThread), ptrace.Departed(err):
		g.incomplete = true
	case !g.short && g.d.unlessEnding(err) != nil:
		g.short = true
		g.d.session.warn("the process may not survive if gokprobe is killed while a thread is at %s, or at a place that is probed later: %v", at, err)
	}
}

// unguard says that the original instruction is back at at: a thread that trapped before goes on there. But where a jump has come meanwhile, its byte traps.
func (g *guard) unguard(at arch.Addr) {
	if !g.d.guard.tried && !g.d.guard.incomplete || g.d.memory.private || g.d.guard.none { // then nothing was said of it
		return
	}
	if det := g.d.detours.heads[at]; det != nil {
		if to, ok := det.CopyOf(at); ok {
			g.setResume(at, to)
			return
		}
	}
	g.setResume(at, at)
}

// forgottenBy: no thread is in det any more, nor comes there. In region another detour may lie there from now on.
func (det *detour) forgottenBy(region *trampoline.Region) {
	_ = region.ClearResume(det.Trap)
	for _, stop := range det.Stops {
		_ = region.ClearResume(stop.At)
	}
}

func (g *guard) addGuard(sites []*site) error {
	if g.d.guard.state.Handler == 0 {
		state, err := g.d.region.AddGuard()
		if err != nil {
			return err
		}
		g.d.guard.state = state
	}
	if err := g.guardSignals(unix.SIGTRAP); err != nil {
		return err
	}
	if !g.d.guard.has(unix.SIGTRAP) {
		return nil
	}
	g.protectCalls()
	return g.d.masks.keepUnblocked(sites, true, g.unmaskAll)
}

// guardSignals makes the guard the action of those of sigs that it is to be for.
func (g *guard) guardSignals(sigs ...unix.Signal) error {
	sigs = slices.DeleteFunc(sigs, func(sig unix.Signal) bool {
		return g.d.guard.state.Handler == 0 || g.d.guard.has(sig) || sig != unix.SIGTRAP && g.owns(sig)
	})
	if len(sigs) == 0 {
		return nil
	}
	for _, proc := range g.d.space.Processes() { // some share the memory only
		tolerated := func(err error) bool {
			return err == nil || proc != g.d.session.main && (errors.Is(err, ptrace.ErrNoThread) || ptrace.Departed(err))
		}
		err := proc.Remote(func(r *ptrace.Remote) error {
			var errs []error
			for _, sig := range sigs {
				if err := g.guardOne(r, sig); !tolerated(err) {
					g.d.guard.state.Installed &^= 1 << uint(sig)
					errs = append(errs, err, g.d.region.NoteGuard(g.d.guard.state))
				}
			}
			return errors.Join(errs...)
		})
		if !tolerated(err) {
			return err
		}
	}
	return nil
}

// guardOne notes the signal before its action is changed: else a recovery would not put the action back.
func (g *guard) guardOne(r *ptrace.Remote, sig unix.Signal) error {
	p := g.d.guard.state.Place
	return r.Guard(sig, g.guardHandler(sig), p.SavedAction(int(sig)), p.ScratchAction(), func() error {
		g.d.guard.state.Installed |= 1 << uint(sig)
		return g.d.region.NoteGuard(g.d.guard.state)
	})
}

// guardHandler is the guard as the action of sig. Goroutines' stacks have no room for a signal's frame.
func (g *guard) guardHandler(sig unix.Signal) ptrace.GuardHandler {
	s := g.d.guard.state
	return ptrace.GuardHandler{Handler: s.Handler, Restorer: s.Restorer, OnStack: g.handles(sig) && g.runsGo()}
}

// handles tells whether the program has a handler for sig now, as far as is known.
func (g *guard) handles(sig unix.Signal) bool {
	tid, err := g.d.space.TID()
	if err != nil {
		return true
	}
	st, err := procfs.ReadStatus(tid, 0)
	return err != nil || st.SigCgt.Has(int(sig))
}

// owns tells whether the program itself has a use for sig: it ignores it or handles it, other than
// by Go's handler of all signals. Then the guard would be in the way, as long as the tracer lives.
func (g *guard) owns(sig unix.Signal) bool {
	tid, err := g.d.space.TID()
	if err != nil {
		return true
	}
	st, err := procfs.ReadStatus(tid, 0)
	if err != nil || st.SigIgn.Has(int(sig)) {
		return true
	}
	return st.SigCgt.Has(int(sig)) && !g.runsGo()
}

// runsGo tells whether the process has Go's handler of signals.
func (g *guard) runsGo() bool {
	if g.d.guard.language == 0 {
		g.d.guard.language = notGo
		if g.d.linker.symbols().HasPrefix("runtime.sigtramp") {
			g.d.guard.language = isGo
		}
	}
	return g.d.guard.language == isGo
}

const (
	notGo = 1 + iota
	isGo
)

// leaveGuard takes a stopped thread out of the guard, back to where the signal that it handles
// has found it: that is on its stack, and the kernel takes it from there. It may be in a copy then.
func (g *guard) leaveGuard(th *ptrace.Thread) {
	stepped := false
	for left := g.d.stepped(); ; stepped = true {
		regs, err := th.Regs()
		if err != nil || !g.d.guard.state.Code.Contains(regs.IP()) || !left.Step(g.d.space, th, regs.IP()) {
			break
		}
	}
	if stepped {
		_ = th.EndStep() // its end follows
	}
}

// guardTrap is guardDetour for the breakpoint in front of det's body.
func (g *guard) guardTrap(det *detour) {
	if g.d.guard.tried && !g.d.memory.private && !g.d.guard.none {
		g.setResume(det.Trap, det.Start())
	}
}

// guardDetour is guardSites for what a jump leads to.
func (g *guard) guardDetour(det *detour) {
	if !g.d.guard.tried || g.d.memory.private || g.d.guard.none {
		return
	}
	for _, h := range det.heads {
		if to, ok := det.CopyOf(h); ok {
			g.setResume(h, to)
		}
	}
	if det.raisesIllegal() {
		g.guardAlso(unix.SIGILL)
	}
	for _, stop := range det.Stops {
		g.setResume(stop.At, stop.To)
		if stop.Why.Faults() {
			g.guardAlso(unix.SIGSEGV, unix.SIGBUS)
		}
	}
}

// expect makes room for what guardDetour notes of the detours that sites are about to get: then no thread stands while a table of thousands is copied.
func (g *guard) expect(sites []*site) {
	if len(sites) == 0 || !g.d.guard.tried || g.d.memory.private || g.d.guard.none {
		return
	}
	n := 0
	for _, st := range sites {
		n += len(st.next().heads) + len(st.next().Stops)
	}
	_ = g.d.region.ReserveResume(sites[0].addr, n) // or it is tried again for each
}

func (g *guard) guardAlso(sigs ...unix.Signal) {
	if err := g.guardSignals(sigs...); err != nil && !errors.Is(err, ptrace.ErrNoThread) {
		g.d.session.warn("the process may not survive if gokprobe is killed: %v", g.d.unlessEnding(err))
	}
}

// cleanRegion takes the guard and the region away from a forked child. A failure harms
// nobody.
func (g *guard) cleanRegion(child *ptrace.Process) {
	ranges := g.d.memory.mapped()
	if len(ranges) == 0 {
		return
	}
	_ = child.Space.Remote(func(r *ptrace.Remote) error {
		if err := recovery.RemoveGuard(r, &g.d.guard.state); err != nil {
			return err
		}
		if givenBack != nil {
			givenBack(g.d, child.Space, ranges)
		}
		return r.Munmap(ranges...)
	})
}

package kprobes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/ptrace"
)

// SyscallProbe is a probe on system calls, by their numbers, wherever in the program they are made. Fill in
// Numbers and what else is needed, and register it. Its fields may be changed only while it is not registered.
//
// In both ways the handlers see a thread in front of the system-call instruction, or
// behind it: regs.IP is the instruction or the next one, Regs.Syscall the call's
// number, Regs.SyscallArg its arguments. Those of the same call made by the ABIs of
// other widths (int 0x80, x32) are not hit.
//
// A call that the kernel restarts by itself after a signal or a stop is one hit. One that a handler of
// a signal interrupts is done; if it is made again after that it is a hit again.
type SyscallProbe struct {
	// Numbers of the calls in the 64-bit ABI (unix.SYS_OPENAT). Numbers that the kernel
	// does not know are allowed: a handler can give them a meaning.
	Numbers []int

	// Enter runs before the call. After 0 the call is made, with the registers as Enter
	// has left them: the result register holds the number. Returning anything else
	// skips it: it returns what Enter has put into the result register (SetReturnValue;
	// the kernel's errors are -1 to -4095), and no other SyscallProbe's Enter runs, nor
	// an Exit.
	Enter func(sp *SyscallProbe, regs *Regs) int
	// Exit runs when the call is done, and may change the result register. The result of one that a signal's handler
	// interrupts is what the kernel has so far, -ERESTARTSYS or one of its like (include/linux/errno.h). It does
	// not run for a call that does not return, such as exit(2) and execve(2), nor in a child that the call makes.
	Exit func(sp *SyscallProbe, regs *Regs)

	// Choose is a condition, over registers in front of the call, that calls have to meet to have their Enter; all have it if it is the
	// zero Cond. The others pass, and by sites most of them need not stop for that, unless there is an Exit. Its Sequences count
	// for all places of the calls in an address space together.
	Choose program.Cond

	// Flags may hold FlagDisabled at registration.
	Flags Flags

	// By says which way the probe is to work.
	By SyscallWay

	own  Kprobe // stands for it where handlers are guarded
	hits atomic.Uint64
	way  SyscallWay // that was chosen
	why  string     // not by sites
	born uint64     // what target.images was when it was placed
	kps  []*Kprobe  // if it is by sites

	choosing atomic.Pointer[[]*Kprobe] // the places that have or had a Program by Choose
	state    atomic.Pointer[choices]   // of Choose
}

// SyscallWay is how a SyscallProbe sees system calls.
type SyscallWay uint8

const (
	// SyscallAuto is by sites if all of them can be known, else by stops.
	SyscallAuto SyscallWay = iota
	// SyscallBySites is by a Kprobe at each instruction of the program's code that makes one of the calls. Other
	// calls cost nothing. Code that is generated later, or mapped without the dynamic linker, is not noticed.
	SyscallBySites
	// SyscallByStops is by ptrace: each system call of the process, of any number,
	// stops its thread twice.
	SyscallByStops
)

func (w SyscallWay) String() string {
	return [...]string{"auto", "sites", "ptrace"}[w]
}

// Hits is how many calls were about to be made while the probe was enabled. It is reset by registration. Safe for
// concurrent use.
func (sp *SyscallProbe) Hits() uint64 { return sp.hits.Load() + sp.counted() }

// NMissed is how many calls ran no handler, since they were made in a function that a handler has called.
// Safe for concurrent use.
func (sp *SyscallProbe) NMissed() uint64 { return sp.Misses().Sum() }

// Misses counts what NMissed does by why. Safe for concurrent use.
func (sp *SyscallProbe) Misses() Misses {
	n := sp.own.Misses()
	if all := sp.choosing.Load(); all != nil {
		for _, kp := range *all {
			n = n.Plus(kp.Misses())
		}
	}
	return n
}

// SyscallStatus is how a registered SyscallProbe works.
type SyscallStatus struct {
	Way       SyscallWay // SyscallBySites or SyscallByStops
	Reason    string     // why it is not by sites; empty if it is
	Places    []Status   // of its probes, if it is by sites
	Optimized int        // how many of them are reached by a jump
	Passing   int        // how many of those have only the calls stop that SyscallProbe.Choose has chosen
	Gone      bool       // no call is seen any more, since the process executes another program, which is not followed; Reason tells that
}

// SyscallStatus tells how sp works.
func (s *Session) SyscallStatus(sp *SyscallProbe) (st SyscallStatus) {
	_ = s.do(func() error {
		st = SyscallStatus{Way: sp.way, Reason: sp.why}
		if st.Gone = !s.opts.Follow && sp.born != s.target.images; st.Gone {
			st.Reason = executesAnother
		}
		for _, kp := range sp.kps {
			place := s.Status(kp)
			if st.Places = append(st.Places, place); place.Mechanism == Optimized {
				if st.Optimized++; kp.Program != nil {
					st.Passing++
				}
			}
		}
		return nil
	})
	return st
}

func (sp *SyscallProbe) enabled() bool { return sp.own.enabled() && sp.own.session != nil }

// Syscall is the number of the system call, in the handlers of a SyscallProbe.
func (r *Regs) Syscall() int {
	if ts := r.state(); ts != nil {
		return ts.number
	}
	return -1
}

// SyscallArg is the n-th (from 0) argument of the system call, in the handlers of a SyscallProbe; 0 beyond the sixth.
func (r *Regs) SyscallArg(n int) uint64 {
	v, _ := r.Get(r.syscallArg(n))
	return v
}

// SetSyscallArg changes it. It reports whether there is one of that number.
func (r *Regs) SetSyscallArg(n int, v uint64) bool { return r.Set(r.syscallArg(n), v) }

func (r *Regs) syscallArg(n int) string {
	names := host.Arch.SyscallArgs()
	if n < 0 || n >= len(names) {
		return ""
	}
	return names[n]
}

// RegisterSyscallProbe places sp. After an error nothing is armed, and nothing stops for it. The error
// matches ErrNoNumbers, ErrRegistered; ptrace.ErrSeccomp if stops were asked for or are needed and the process has seccomp filters
// that can't be lifted; ErrIncomplete if sites were asked for and not all of them can be known. If ctx or the session's own context is done before
// sp is placed, sp is not: the error matches that context's error and cause.
func (s *Session) RegisterSyscallProbe(ctx context.Context, sp *SyscallProbe) error {
	if len(sp.Numbers) == 0 {
		return fmt.Errorf("system calls: %w", ErrNoNumbers)
	}
	ctx, forget := s.within(ctx)
	defer forget()
	return s.do(func() error {
		defer s.heed.until(ctx)()
		if sp.own.session != nil {
			return fmt.Errorf("%s: %w", sp.name(), ErrRegistered)
		}
		sp.own = Kprobe{SymbolName: sp.name(), Flags: sp.Flags & FlagDisabled}
		sp.hits.Store(0)
		if err := sp.prepareChoice(); err != nil {
			return fmt.Errorf("%s: %w", sp.name(), err)
		}
		return s.syscalls.placeSyscalls(sp)
	})
}

// syscallProbes is the SyscallProbes of a session.
type syscallProbes struct {
	s   *Session
	all []*SyscallProbe
}

// placeSyscalls places sp by sites, if that was asked for or can be, else by stops.
func (sc *syscallProbes) placeSyscalls(sp *SyscallProbe) error {
	sp.own.session, sp.born = sc.s, sc.s.target.images
	sp.way, sp.why = SyscallByStops, "it was asked for"
	if sp.By != SyscallByStops {
		sp.way, sp.why = SyscallBySites, ""
		err := sc.placeBySites(sp, nil)
		switch {
		case err == nil:
			sc.all = append(sc.all, sp)
			return nil
		case sc.s.heed.wanted() != nil:
			sp.own.session = nil
			return fmt.Errorf("%s: %w", sp.name(), sc.s.heed.wanted())
		case sp.By == SyscallBySites:
			sp.own.session = nil
			return fmt.Errorf("%s: %w", sp.name(), err)
		}
		sp.way, sp.why = SyscallByStops, err.Error()
	}
	sc.all = append(sc.all, sp)
	if err := sc.stopAtSyscalls(); err != nil {
		sc.all = sc.all[:len(sc.all)-1]
		sp.own.session = nil
		return errors.Join(fmt.Errorf("%s: %w", sp.name(), err), sc.stopAtSyscalls())
	}
	return nil
}

// UnregisterSyscallProbe removes sp. When it returns, none of its handlers runs or will
// run. The error lists code that could not be put back.
func (s *Session) UnregisterSyscallProbe(sp *SyscallProbe) error {
	busy := append([]*Kprobe{&sp.own}, sp.kps...)
	err := s.do(func() error {
		if sp.own.session != s {
			return nil
		}
		s.syscalls.all = slices.DeleteFunc(s.syscalls.all, func(o *SyscallProbe) bool { return o == sp })
		sp.own.session = nil
		err := s.registry.unregister(sp.kps)
		sp.kps = nil
		s.registry.endStates(&sp.own)
		return errors.Join(err, s.syscalls.stopAtSyscalls())
	})
	if !s.tracer.Own() { // a handler would wait for itself
		s.handlers.waitFor(busy)
	}
	return err
}

// EnableSyscallProbe makes a disabled probe hit again.
func (s *Session) EnableSyscallProbe(sp *SyscallProbe) error {
	return s.syscalls.switchSyscallProbe(sp, true)
}

// DisableSyscallProbe silences sp and keeps it registered. Calls that it has seen begin have their Exit still.
func (s *Session) DisableSyscallProbe(sp *SyscallProbe) error {
	return s.syscalls.switchSyscallProbe(sp, false)
}

func (sc *syscallProbes) switchSyscallProbe(sp *SyscallProbe, on bool) error {
	return sc.s.do(func() error {
		if sp.own.session != sc.s {
			return fmt.Errorf("%s: %w", sp.name(), ErrNotRegistered)
		}
		if sp.own.Flags |= FlagDisabled; on {
			sp.own.Flags &^= FlagDisabled
		}
		if err := sc.s.registry.changeDisabled(sp.kps, !on); err != nil {
			return err
		}
		return sc.stopAtSyscalls()
	})
}

func (sp *SyscallProbe) name() string { return fmt.Sprintf("system call %d", sp.Numbers[0]) }

// stopAtSyscalls makes all address spaces stop for the calls that probes by stops ask
// for.
func (sc *syscallProbes) stopAtSyscalls() error {
	var errs []error
	for d := range sc.s.settled() {
		errs = append(errs, d.unlessEnding(d.space.TraceSyscalls(sc.stoppedFor(d))))
	}
	return errors.Join(errs...)
}

// followSyscalls does the same for a new address space.
func (sc *syscallProbes) followSyscalls(d *domain) {
	if err := d.unlessEnding(d.space.TraceSyscalls(sc.stoppedFor(d))); err != nil {
		sc.s.warn("probes on system calls are not in a followed child: %v", err)
	}
}

// stoppedFor is the calls that the threads of d stop at.
func (sc *syscallProbes) stoppedFor(d *domain) map[uint64]bool {
	numbers := map[uint64]bool{}
	for _, sp := range sc.all {
		if sp.stopsIn(d) && sp.enabled() {
			for _, nr := range sp.Numbers {
				numbers[uint64(nr)] = true
			}
		}
	}
	return numbers
}

// stopsIn tells whether sp works by stops in d. It does in all programs that are executed.
func (sp *SyscallProbe) stopsIn(d *domain) bool { return sp.way == SyscallByStops || d.linker.executed }

// SyscallEntered implements ptrace.Handler.
func (s hooks) SyscallEntered(th *ptrace.Thread) (made bool) {
	defer s.heirs.within()()
	d := s.domainOf(th)
	regs, err := th.Regs()
	if d == nil || err != nil {
		return true
	}
	ts := s.hits.stateOf(th, d)
	ts.regs.Regs, ts.number = regs, int(regs.ReturnValue())
	ts.enter(atCall)
	defer ts.done()
	for _, sp := range slices.Clone(s.syscalls.all) {
		if sp.stopsIn(d) && !s.syscalls.enterSyscall(ts, sp, false) {
			return false
		}
	}
	return true
}

// enterSyscall runs the Enter of sp for a thread that stands in front of a call, which a place's Program may have
// counted and chosen.
func (sc *syscallProbes) enterSyscall(ts *threadState, sp *SyscallProbe, chosen bool) (made bool) {
	switch {
	case !sp.enabled() || sc.s.registry.disarmed || ts.over || !slices.Contains(sp.Numbers, ts.number):
		return true
	case ts.outer != nil:
		sp.own.missed.add(MissNested, 1)
		return true
	}
	if !chosen {
		chosen = sc.chooses(ts, sp)
	}
	if sp.Enter == nil || !chosen {
		return true
	}
	return sc.s.handlers.guard(&sp.own, func() int { return sp.Enter(sp, &ts.regs) }) == 0
}

// SyscallReturned implements ptrace.Handler.
func (s hooks) SyscallReturned(th *ptrace.Thread) {
	defer s.heirs.within()()
	d := s.domainOf(th)
	ts := s.hits.states.Of(th)
	regs, err := th.Regs()
	if d == nil || ts == nil || err != nil {
		return
	}
	ts.regs.Regs = regs
	ts.enter(atCall)
	defer ts.done()
	for _, sp := range slices.Clone(s.syscalls.all) {
		if sp.stopsIn(d) {
			s.syscalls.leaveSyscall(ts, sp)
		}
	}
}

// leaveSyscall runs the Exit of sp.
func (sc *syscallProbes) leaveSyscall(ts *threadState, sp *SyscallProbe) {
	if sp.own.session != sc.s || sp.Exit == nil || sc.s.registry.disarmed || ts.over || ts.outer != nil || !slices.Contains(sp.Numbers, ts.number) {
		return
	}
	sc.s.handlers.guard(&sp.own, func() int { sp.Exit(sp, &ts.regs); return 0 })
}

package recovery

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// moveOut takes a stopped thread that is in code of ours, or was about to be sent there, to the
// original code. It reports whether it was.
func (r *recovery) moveOut(th *ptrace.Thread) (moved bool) {
	if !th.Stopped() {
		return false
	}
	regs, err := th.Regs()
	if err != nil {
		return false
	}
	if moved = r.trapped(th, regs); !moved && r.holder(regs.IP()) == nil {
		return false
	}
	for r.work.spend(placeWork) {
		regs, err := th.Regs()
		if err != nil {
			break
		}
		l := r.holder(regs.IP())
		if l == nil {
			break
		}
		if to, pop, ok := r.onward(l, regs.IP()); ok {
			regs.SetIP(to)
			regs.SetSP(regs.SP() + arch.Addr(pop))
			continue // perhaps to a slot's place, whose detour it was; and such may lead to each other
		}
		if r.breakpointAt(regs.IP()) {
			break
		}
		if *r.steps <= 0 {
			r.work.end()
			break
		}
		from := regs.IP()
		if !r.steps.Step(r.space, th, from) {
			break
		}
		leaveStep(th, l, from)
	}
	if th.Stop().Reason == ptrace.Breakpoint { // the program's own
		th.Go(ptrace.WithSignal())
	} else {
		th.Go(ptrace.RunOn())
	}
	return true
}

// leaveStep takes back the step from from, if by that a thread has left l's guard. Its
// last instruction loads the flags. Behind such an instruction the kernel takes the
// trap flag of the next step for the target's own (enable_single_step in
// arch/x86/kernel/step.c). The flag would stay, and end the target.
func leaveStep(th *ptrace.Thread, l *leftover, from arch.Addr) {
	regs, err := th.Regs()
	if err == nil && l.guard.Code.Contains(from) && !l.guard.Code.Contains(regs.IP()) {
		_ = th.EndStep() // its end follows
	}
}

// onward returns the place where a thread at ip in l's code is sent, and how many bytes
// higher its stack pointer is there. ok is false if the thread has to run on first.
func (r *recovery) onward(l *leftover, ip arch.Addr) (to arch.Addr, pop int, ok bool) {
	if to, pop, ok = l.origin(ip); ok {
		return to, pop, true
	}
	to, ok, err := l.resumeAt(ip) // a breakpoint, or a read of memory that is better not made now
	return to, 0, ok && err == nil
}

// holder is the region in whose code ip lies, nil if it is in none.
func (r *recovery) holder(ip arch.Addr) *leftover {
	for _, l := range r.found {
		if l.contains(ip) {
			return l
		}
	}
	return nil
}

// breakpointAt tells of a breakpoint that nothing is known of. Our code is filled up
// with such breakpoints, and no thread leaves by one: a thread that comes to it was led
// there by code that we did not write. It stays there.
func (r *recovery) breakpointAt(ip arch.Addr) bool {
	now := make([]byte, len(host.Arch.Breakpoint()))
	return r.space.ReadMemory(ip, now) == nil && bytes.Equal(now, host.Arch.Breakpoint())
}

// trapped deals with a thread that has raised an exception by our doing: it does not get the
// signal, and goes on where the guard would have sent it.
func (r *recovery) trapped(th *ptrace.Thread, regs arch.Regs) bool {
	if th.Stop().Reason != ptrace.Signal && th.Stop().Reason != ptrace.Breakpoint {
		return false
	}
	info, err := th.Siginfo()
	if err != nil || !info.Synchronous() {
		return false
	}
	for _, l := range r.found {
		if to, ours := l.afterTrap(info, regs); ours {
			regs.SetIP(to)
			th.Go(ptrace.DropSignal())
			th.Go(ptrace.RunOn())
			return true
		}
	}
	return false
}

// afterTrap is what the guard does (arch.Guards).
func (l *leftover) afterTrap(info *ptrace.Siginfo, regs arch.Regs) (to arch.Addr, ours bool) {
	ip := regs.IP()
	at := ip
	switch info.Signo() {
	case unix.SIGTRAP:
		switch {
		case info.SingleStep():
			return ip, !regs.TrapFlag()
		case info.StepOverCall(): // of a tracer's, which does not take it back when it dies
			return ip, !regs.TrapFlag() && !l.behindOwnTrap(ip)
		case !info.Breakpoint():
			return 0, false
		case info.Marked() && info.Addr() == ip:
			return ip, true
		}
		at = regs.Trapped()
	case unix.SIGILL, unix.SIGSEGV, unix.SIGBUS:
	default:
		return 0, false
	}
	if to, ok, err := l.resumeAt(at); ok && err == nil {
		return to, true
	}
	return ip, info.Signo() == unix.SIGTRAP && l.contains(ip)
}

// behindOwnTrap tells of a thread that the program itself has raised the signal, by an instruction that the kernel reports as it does a step over a system call.
func (l *leftover) behindOwnTrap(ip arch.Addr) bool {
	insn := make([]byte, len(host.OwnTrap))
	return l.mem.ReadMemory(ip-arch.Addr(len(insn)), insn) == nil && string(insn) == host.OwnTrap
}

// resumeAt is Header.ResumeAt. A table that is not ours is not asked again: a search in it takes long.
func (l *leftover) resumeAt(at arch.Addr) (to arch.Addr, ok bool, err error) {
	to, ok, err = l.ResumeAt(l.mem, at)
	if errors.Is(err, trampoline.ErrTooMuch) {
		l.Resume = 0
	}
	return to, ok, err
}

// contains tells whether ip is in l's code.
func (l *leftover) contains(ip arch.Addr) bool {
	i := endsBehind(l.code, ip, func(r arch.Range) arch.Range { return r })
	return i < len(l.code) && l.code[i].Contains(ip)
}

// origin translates ip in l's code to the original code: a thread may be there once its
// stack pointer is pop bytes higher. ok is false if the thread has to run on first.
func (l *leftover) origin(ip arch.Addr) (orig arch.Addr, pop int, ok bool) {
	if l.guard.Code.Contains(ip) {
		return 0, 0, false
	}
	if d, ok, err := l.detours.Find(l.mem, ip); ok && err == nil {
		return d.Detour.Original(ip)
	}
	at, site, ok, err := l.Site(l.mem, ip)
	if !ok || err != nil {
		return 0, 0, false
	}
	return l.inSlot(at, site, ip)
}

// inSlot is origin for the slot at slot, whose site is at site.
func (l *leftover) inSlot(slot, site, ip arch.Addr) (orig arch.Addr, pop int, ok bool) {
	insn, err := l.original.insn(site)
	if err != nil {
		return 0, 0, false
	}
	plan, err := host.Arch.Plan(insn)
	if err != nil {
		return 0, 0, false
	}
	s, err := host.Code.Assemble(plan, slot)
	if err != nil {
		return 0, 0, false
	}
	if orig, _, ok := s.Origin(ip); ok {
		return orig, 0, true
	}
	if s.Alone != slot || s.Boost != 0 {
		return 0, 0, false
	}
	if plan.Method == arch.SystemCall { // in it, if it restarts
		return insn.End(), 0, ip == slot+arch.Addr(insn.Len()) || ip == slot
	}
	d, err := host.Detours.AssembleDetour(slot, []arch.Insn{insn}, nil)
	if err != nil {
		return 0, 0, false
	}
	return d.Original(ip)
}

// giveBackMasks gives stopped threads their own masks back that a killed tracer had held signals of. It comes when they are out of our code, and out of calls that they made
// for the tracer: those have masks of their own.
func (l *leftover) giveBackMasks(space *ptrace.Space) {
	held, err := l.HeldMasks(l.mem)
	if err != nil {
		return
	}
	for _, m := range held {
		for _, th := range space.Threads() {
			if th.TID != m.TID || !th.Stopped() {
				continue
			}
			now, err := th.BlockedSignals()
			if err == nil && now == ptrace.Sigset(m.Instead) {
				_ = th.BlockSignals(ptrace.Sigset(m.Own))
			}
		}
	}
}

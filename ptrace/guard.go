package ptrace

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Flags of a signal's action (asm-generic/signal-defs.h).
const (
	saSiginfo   = 0x4
	saRestorer  = 0x04000000
	saOnStack   = 0x08000000
	saNoDefer   = 0x40000000
	saRestart   = 0x10000000
	saResetHand = 0x80000000
	sigIgn      = 1
)

// ErrOnce says that there can be no guard for a signal.
var ErrOnce = errors.New("the target's handler is to run once only")

// ForgetTrap says that the process has set another action for SIGTRAP, in place of its guard if it had one.
func (r *Remote) ForgetTrap() {
	p := r.th.Proc
	if sa, err := r.sigaction(unix.SIGTRAP); err == nil {
		p.tracer.takeTrap(p, sa)
	}
}

// DefaultTrap says that the program believes to have the default action for SIGTRAP, if it has a guard. Else the answer is false, and nothing has happened.
func (p *Process) DefaultTrap() (guarded bool) { return p.trap.believesDefault() }

// Protect makes threads make system calls for us by the instruction at insn, behind which is a
// breakpoint that a guard knows: from there it lets the thread go on with the context that is saved
// at save, should we be killed meanwhile. Both are 0 if there is none.
func (s *Space) Protect(insn, save arch.Addr) { s.syscallInsn, s.saveAt = insn, save }

// protect saves the context of a thread that is to make system calls. It moves the
// thread to the place where the guard expects it, with all signals blocked except the
// one that calls the guard; or to a place where it needs no guard (refuge.go).
//
// trapWaits says that the target is to get a SIGTRAP of its own behind the calls. That has to stay blocked meanwhile: it would come to us, and be lost with us.
func (r *Remote) protect(saved *host.Regs, mask Sigset, trapWaits bool) error {
	th, s := r.th, r.th.Proc.Space
	if s.blind {
		return th.setSigmask(allSignals)
	}
	if guarded := s.saveAt != 0 && !mask.Has(unix.SIGTRAP); !guarded || trapWaits {
		insn, ok := th.takeRefuge(saved, mask)
		if ok {
			r.insn = insn
			th.at.errand.sheltered = true
		}
		if ok || !guarded {
			return th.setSigmask(allSignals)
		}
	}
	if err := s.WriteMemory(s.saveAt, host.Guards.Context(saved, uint64(mask))); err != nil {
		return err
	}
	regs, err := th.hostRegs()
	if err != nil {
		return err
	}
	regs.SetIP(s.syscallInsn.Add(int64(len(host.Arch.SyscallInsn()))))
	regs.LeaveCall()
	if err := th.writeThrough(); err != nil {
		return err
	}
	return th.setSigmask(allSignals &^ sigbit(unix.SIGTRAP))
}

// Commit writes the stopped thread's registers to the kernel, so that it goes on there
// even if we are killed before it is resumed. It does not get a signal of ours then
// that it stopped for (reap.go); one of its own it does.
func (th *Thread) Commit() {
	if th.state != stopped || !th.at.regs.valid {
		return
	}
	if th.markMoved(); th.writeThrough() != nil {
		return
	}
	if t := th.Proc.tracer; th.at.stop.Reason != Signal && t.unreaped == th.TID {
		th.at.committed = th.at.moved
		t.take()
		th.at.committed = false
	}
}

// writeThrough writes changed registers now.
func (th *Thread) writeThrough() error {
	err := th.gone(host.WriteRegs(th.TID, &th.at.regs.kernel, &th.at.regs.own))
	th.at.regs.kernel = th.at.regs.own
	return err
}

// forced are the signals that breakpoints raise, and bytes of jumps.
var forced = sigbit(unix.SIGTRAP) | sigbit(unix.SIGILL)

// Unforced returns the set to block in place of s, if s has nearly all signals: s
// without the signals that breakpoints raise. Otherwise ok is false: a thread that
// blocks few signals, and SIGTRAP, really wants to block that, or needs it for
// sigwait(3).
func (s Sigset) Unforced() (set Sigset, ok bool) {
	const nearlyAll = 32
	return s &^ forced, s.Has(unix.SIGTRAP) && bits.OnesCount64(uint64(s)) >= nearlyAll
}

// Masks are the sets of signals that the threads of the space block, or would if
// Unblock had not been called. For a thread that was seized, or has stopped, just now, its mask of that
// moment is used: to ask thousands takes long.
func (s *Space) Masks() (masks []Sigset) {
	const justNow = 5 * time.Second
	now := time.Now()
	for _, th := range s.Threads() {
		if th.unblocked.is {
			masks = append(masks, th.unblocked.from)
		} else if th.blocks.seized != nil && now.Sub(th.blocks.seizedAt) < justNow {
			masks = append(masks, *th.blocks.seized)
		} else if m, err := th.sigmask(); err == nil { // it has stopped
			masks = append(masks, m)
		} else if st, err := procfs.ReadStatus(th.Proc.PID, th.TID); err == nil {
			masks = append(masks, Sigset(st.SigBlk))
		}
	}
	return masks
}

// Unblock lets the guard have the SIGTRAPs of threads that block nearly all signals, as
// those of libraries do to be left alone by them: else the first breakpoint that such a
// thread meets after our death would be the process's end. All threads must be stopped, by a Freeze or since they were never let go.
// A thread that is let go blocks it again. note is called with a thread's mask before
// that is changed, also for threads that could not be stopped now. If note returns
// false nothing is changed.
func (s *Space) Unblock(note func(Sigset) bool) {
	s.noteUnblocked = note
	for _, th := range s.Threads() {
		if th.state == stopped {
			th.unblock()
		}
	}
}

// unblock is Unblock for a thread. While signals are held back it is we who block nearly all (blockHeld), and what the thread blocks by itself may
// be SIGTRAP alone, which it is to block again after each hit: it is looked at when it has its own mask again.
func (th *Thread) unblock() {
	if th.owed.mask != nil {
		th.owed.unblock = true
		return
	}
	m, err := th.sigmask()
	if err != nil {
		return
	}
	less, ok := m.Unforced()
	if !ok || th.unblocked.sentWaits {
		return
	}
	if note := th.Proc.Space.noteUnblocked; note != nil && !note(m) {
		return
	}
	if th.setSigmask(less) == nil {
		th.unblocked.blocksLess(m)
	}
}

// Unblocked says that a tracer which was killed has called Unblock. Threads that block
// all signals but just those of breakpoints are the ones it has left so; no program is
// known that does it by itself. The same holds for threads
// that block one of sets without it.
func (s *Space) Unblocked(_ *Frozen, sets ...Sigset) {
	for _, th := range s.Threads() {
		m, err := th.sigmask()
		if th.state != stopped || err != nil || th.unblocked.is || m&forced != 0 {
			continue
		}
		if (m | forced).Full() {
			th.unblocked.blocksLess(m | forced)
		}
		for _, set := range sets {
			if m == set&^forced&^unblockable {
				th.unblocked.blocksLess(set &^ unblockable)
			}
		}
	}
}

// block undoes unblock, if the thread still blocks the same signals otherwise, or all.
func (th *Thread) block() {
	if !th.unblocked.is {
		return
	}
	th.unblocked.is = false
	switch m, err := th.sigmask(); {
	case err != nil:
	case !th.unblocked.stands(m): // the program has set another one
	case m|forced == th.unblocked.from|forced:
		_ = th.setSigmask(th.unblocked.from)
	default:
		_ = th.setSigmask(m | forced)
	}
}

// regainDelay is how long a process may be without its guard after a thread that blocks SIGTRAP
// has hit. To put it back after each such hit would cost several times what the hit costs.
const regainDelay = 5 * time.Millisecond

// checkDelay is how often a process is asked whether it has its guard still: a thread that blocks
// all signals for a moment, as C libraries do, loses it at a breakpoint, and nothing tells.
const checkDelay = 20 * time.Millisecond

func (t *Tracer) checkGuard(p *Process) {
	if !p.trap.toCheck(time.Now()) {
		return
	}
	st, err := procfs.ReadStatus(p.PID, 0)
	switch {
	case err != nil:
	case Sigset(st.SigCgt).Has(unix.SIGTRAP):
		for _, th := range p.threads {
			th.guard.unsure = th.guard.unsure && th.at.sight == stale // else it did not block the signal
		}
	case !t.noteIgnored(p, &st):
		t.regainGuard(p)
	}
}

// noteIgnored sees that the program ignores SIGTRAP, where there was a guard.
func (t *Tracer) noteIgnored(p *Process, st *procfs.Status) bool {
	if !Sigset(st.SigIgn).Has(unix.SIGTRAP) {
		return false
	}
	t.takeTrap(p, &sigaction{handler: sigIgn})
	return true
}

// regainGuard puts the guard back that a breakpoint has taken away, soon.
func (t *Tracer) regainGuard(p *Process) {
	if p.trap.regaining {
		return
	}
	p.trap.regaining = true
	time.AfterFunc(regainDelay, func() {
		_ = t.Do(func() {
			p.trap.regaining = false
			t.regainNow(p)
		})
	})
}

func (t *Tracer) regainNow(p *Process) {
	p.trap.missing = false
	if !p.trap.guarded() || p.dropped || p.leaving {
		return
	}
	if st, err := procfs.ReadStatus(p.PID, 0); err == nil && (Sigset(st.SigCgt).Has(unix.SIGTRAP) || t.noteIgnored(p, &st)) {
		return // the signal was not blocked, after all
	}
	// Of this process: a vfork child has actions of its own.
	if p.Remote(func(r *Remote) error {
		r.noteLoss()
		return r.setSigaction(unix.SIGTRAP, p.trap.stands())
	}) != nil {
		p.trap.missing = true // it is inside vfork(2)
		return
	}
	t.handler.GuardLost(p)
}

// afterVfork does the delayed work for a process whose thread th was inside vfork(2):
// th could not be stopped, and could not make system calls for us.
func (t *Tracer) afterVfork(th *Thread) {
	p := th.Proc
	if p.trap.stands() == nil {
		_ = p.NoteTrapAction() // it could not be read at the attach
	}
	if p.trap.guardOnly() {
		th.unblock()
	}
	if p.trap.missing {
		t.regainNow(p)
	}
	t.handler.VforkEnded(th)
}

// Munmap removes mappings. No thread may be inside.
func (r *Remote) Munmap(ranges ...arch.Range) error {
	if p := r.th.Proc; p.newborn {
		ranges = p.Space.joined(ranges)
	}
	var errs []error
	for _, at := range ranges {
		if err := r.munmap(at); err != nil {
			errs = append(errs, fmt.Errorf("munmap %s: %w", at, err))
		}
	}
	return errors.Join(errs...)
}

// joined is ranges, made one where there is nothing between them: fewer calls remove them. That holds for a newborn, in which nobody maps anything meanwhile.
func (s *Space) joined(ranges []arch.Range) (all []arch.Range) {
	for _, r := range slices.SortedFunc(slices.Values(ranges), func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) }) {
		if n := len(all) - 1; n >= 0 && s.entry.files.vacant(arch.Range{Start: all[n].End, End: r.Start}) {
			all[n].End = r.End
		} else {
			all = append(all, r)
		}
	}
	return all
}

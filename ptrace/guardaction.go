package ptrace

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// GuardHandler is a guard's code in the target.
type GuardHandler struct {
	Handler, Restorer arch.Addr
	// OnStack: it runs on the thread's alternate stack, if there is one, also where the program's own handler does not. So it must where stacks have no room
	// for a signal's frame: goroutines' have none.
	OnStack bool
}

// Guard makes g the action of sig in the process that the remote calls are made in. The target's own action is saved at saved; the guard runs with its flags
// and mask. scratch is target memory for one action. before is called before an action is set. The error matches ErrOnce if the program's handler is to run
// once only (SA_RESETHAND): the guard was set for a moment at most, if another thread of the target's had just set the handler. After any error the
// target's own action stands, as far as calls can be made.
func (r *Remote) Guard(sig unix.Signal, g GuardHandler, saved, scratch arch.Addr, before func() error) error {
	own, err := r.ownAction(sig, saved)
	if err != nil {
		return fmt.Errorf("reading the action of %s: %w", unix.SignalName(sig), err)
	}
	if own.once() {
		return ErrOnce
	}
	sa := guardAction(own, g)
	if err := errors.Join(r.putAction(scratch, sa), before()); err != nil {
		return err
	}
	was, err := r.exchange(sig, scratch, saved)
	last := own
	if set := r.set[sig]; set != nil && own.handler == 0 {
		last = set
	}
	if err == nil && was.handler == 0 && last.handler > sigIgn && !last.once() && was.rest() == last.rest() { // a breakpoint has reset it meanwhile
		own, sa = last, guardAction(last, g)
		if err = r.putAction(scratch, sa); err == nil {
			_, err = r.exchange(sig, scratch, 0)
		}
		err = errors.Join(err, r.putAction(saved, own))
	} else if err == nil && *was != *own { // another thread has set one meanwhile, or the default one has flags
		own, sa = was, guardAction(was, g)
		if err = ErrOnce; !own.once() {
			if err = r.putAction(scratch, sa); err == nil {
				_, err = r.exchange(sig, scratch, 0)
			}
		}
		if err != nil {
			_, undo := r.exchange(sig, saved, 0)
			err = errors.Join(err, undo)
		}
	}
	if err != nil {
		return fmt.Errorf("setting the action of %s: %w", unix.SignalName(sig), err)
	}
	if allFaults.Has(sig) {
		r.th.Proc.noteFaultAction(sig, sa)
		r.th.alone().actions |= sigbit(sig)
	}
	if p := r.th.Proc; sig == unix.SIGTRAP {
		p.trap.guardedBy(sa, own)
	}
	return nil
}

// GuardDoubted tells that nobody knows just now what stands as the process's action for SIGTRAP: a breakpoint has reset it, or the program may have set another.
func (p *Process) GuardDoubted() bool { return p.trap.doubted() }

// guarded tells whether handler is the action of signals, in a forked child, and notes what that tells of its actions for faults.
func (r *Remote) guarded(signals Sigset, handler arch.Addr) (bool, error) {
	p := r.th.Proc
	st, err := procfs.ReadStatus(p.PID, r.th.TID)
	if err != nil || signals&^Sigset(st.SigCgt) != 0 {
		return false, err
	}
	faults := faultActions{action: map[unix.Signal]*sigaction{}}
	for sig := unix.Signal(1); sig <= unix.SIGSYS; sig++ {
		if !signals.Has(sig) {
			continue
		}
		sa, err := r.sigaction(sig)
		if err != nil || sa.handler != uintptr(handler) {
			return false, err
		}
		if allFaults.Has(sig) {
			faults.handled |= sigbit(sig)
			faults.action[sig] = sa
		}
	}
	if faults.known = Sigset(st.SigCgt|st.SigIgn)&allFaults == faults.handled; faults.known {
		p.faults = faults
	}
	return true, nil
}

// ownAction is the program's action of sig, which lies at saved then. That it is the default one is told without a call.
func (r *Remote) ownAction(sig unix.Signal, saved arch.Addr) (*sigaction, error) {
	st, err := procfs.ReadStatus(r.th.Proc.PID, r.th.TID)
	if err != nil || st.SigCgt.Has(int(sig)) || st.SigIgn.Has(int(sig)) {
		return r.exchange(sig, 0, saved)
	}
	own := &sigaction{}
	return own, r.putAction(saved, own)
}

// once tells of a handler that is to run once only.
func (sa *sigaction) once() bool { return sa.handler > sigIgn && sa.flags&saResetHand != 0 }

// guardAction is the action for a guard in place of own. The signal is not blocked meanwhile:
// the handler of another one may come between, and to a breakpoint; so may the program's own. See Thread.nested.
func guardAction(own *sigaction, g GuardHandler) *sigaction {
	sa := &sigaction{handler: uintptr(g.Handler), flags: saSiginfo | saRestorer | saOnStack | saNoDefer | saRestart, restorer: uintptr(g.Restorer)}
	if own.handler > sigIgn {
		sa.mask = own.mask
		sa.flags = own.flags&^saResetHand | saSiginfo | saRestorer | saNoDefer
		if g.OnStack {
			sa.flags |= saOnStack
		}
		if own.flags&saRestorer != 0 {
			sa.restorer = own.restorer
		}
	}
	sa.mask &^= sigbit(unix.SIGTRAP) | sigbit(unix.SIGILL) // what the program's own handler calls may have breakpoints
	return sa
}

// Unguard puts back the program's own action for sig, which saved has, unless the program has
// replaced handler by another action meanwhile.
func (r *Remote) Unguard(sig unix.Signal, handler, saved, scratch arch.Addr) error {
	p := r.th.Proc
	// A forked child that has not run yet is alone, and nothing raises a signal meanwhile: it gets its own action at once. If it has set another one in
	// the guard's place, which nobody has noticed, that comes back with the next call.
	instead, alone := arch.Addr(0), p.newborn
	if alone {
		instead = saved
	}
	now, err := r.exchange(sig, instead, scratch)
	lost := err == nil && sig == unix.SIGTRAP && p.trap.guarded() && p.trap.left(now) // by a breakpoint
	switch ours := err == nil && now.handler == uintptr(handler) || lost; {
	case err != nil:
	case ours && !alone:
		_, err = r.exchange(sig, saved, scratch)
	case !ours && alone:
		_, err = r.exchange(sig, scratch, 0)
	}
	if err != nil {
		return fmt.Errorf("putting back the action of %s: %w", unix.SignalName(sig), err)
	}
	if sig == unix.SIGTRAP {
		p.trap.unguarded()
	}
	return nil
}

// Unmask makes the program's handler of sig, if there is one, run with traps not blocked:
// signals that breakpoints raise. Else a breakpoint in there would end the process
// after our death, and until then it would reset the action of the signal each time.
// scratch is target memory for one action. changed are those of traps that were
// blocked.
func (r *Remote) Unmask(sig unix.Signal, traps Sigset, scratch arch.Addr) (changed Sigset, err error) {
	return r.mask(sig, func(mask Sigset) Sigset { return mask & traps }, scratch)
}

// Mask is the opposite of Unmask.
func (r *Remote) Mask(sig unix.Signal, traps Sigset, scratch arch.Addr) error {
	_, err := r.mask(sig, func(mask Sigset) Sigset { return traps &^ mask }, scratch)
	return err
}

func (r *Remote) mask(sig unix.Signal, change func(Sigset) Sigset, scratch arch.Addr) (changed Sigset, err error) {
	sa, err := r.exchange(sig, 0, scratch)
	if err == nil && sa.handler > sigIgn {
		changed = change(sa.mask)
	}
	if changed != 0 {
		sa.mask ^= changed
		if err = r.putAction(scratch, sa); err == nil {
			_, err = r.exchange(sig, scratch, 0)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("changing the mask of the handler of %s: %w", unix.SignalName(sig), err)
	}
	return changed, nil
}

// SetOwn makes the action that lies at at the process's for sig, as the program wants it. A Guard that follows knows it: a breakpoint in a thread that
// blocks SIGTRAP may reset it in between. The error is the call's errno, or as Syscall's.
func (r *Remote) SetOwn(sig unix.Signal, at arch.Addr) error {
	set, err := r.actionAt(at)
	if err != nil {
		set = nil // the call tells what is wrong with it
	}
	if _, err = r.Syscall(unix.SYS_RT_SIGACTION, uint64(sig), uint64(at), 0, 8); err == nil {
		r.set = map[unix.Signal]*sigaction{sig: set}
	}
	return err
}

// exchange is rt_sigaction(2) with an action and a place for the one before, 0 if there is none.
func (r *Remote) exchange(sig unix.Signal, action, old arch.Addr) (*sigaction, error) {
	if _, err := r.Syscall(unix.SYS_RT_SIGACTION, uint64(sig), uint64(action), uint64(old), 8); err != nil || old == 0 {
		return nil, err
	}
	was, err := r.actionAt(old)
	if err == nil && sig == unix.SIGTRAP && action != 0 {
		r.trap.replaced(was, &r.th.Proc.trap)
	}
	return was, err
}

// actionAt is an action in the target's memory.
func (r *Remote) actionAt(at arch.Addr) (*sigaction, error) {
	b := make([]byte, arch.ActionLen)
	if err := r.th.Proc.Space.ReadMemory(at, b); err != nil {
		return nil, err
	}
	u := func(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n:]) }
	return &sigaction{handler: uintptr(u(0)), flags: u(1), restorer: uintptr(u(2)), mask: Sigset(u(3))}, nil
}

func (r *Remote) putAction(at arch.Addr, sa *sigaction) error {
	b := make([]byte, 0, arch.ActionLen)
	for _, v := range []uint64{uint64(sa.handler), sa.flags, uint64(sa.restorer), uint64(sa.mask)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return r.th.Proc.Space.WriteMemory(at, b)
}

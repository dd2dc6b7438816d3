package kprobes

import (
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/patch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Close disarms everything, puts the code back, and lets the process go as if it had
// never been held. The error lists changes that could not be undone. A second call does
// nothing. But after a session has closed because its context was done, the first call returns the error of that.
//
// A process that is inside vfork(2) for seconds keeps injected memory that does nothing: the error says so, and the guardian, the next attach,
// or Recover takes it away.
func (s *Session) Close() error {
	err := s.close(func(error) {})
	if alone := s.untold.Swap(nil); alone != nil {
		return *alone
	}
	return err
}

// closeAlone is Close without a caller: the next one is told what came of it.
func (s *Session) closeAlone() {
	_ = s.close(func(err error) {
		if s.untold.Store(&err); err != nil {
			s.warn("the session has closed, since its context is done: %v", err)
		}
	})
}

// close tells ended, on the tracer's thread, what it returns.
func (s *Session) close(ended func(error)) error {
	defer s.end(ErrClosed)
	var err error
	own, end := s.tracer.Own(), time.Now().Add(vforkGrace) // a handler can't wait
	for again := true; again; {
		derr := s.tracer.Do(func() {
			defer s.heirs.within()()
			again = false
			if s.closed {
				s.target.endGuardian()
				return
			}
			if s.endCalls(); s.closed {
				return // by a handler that has run meanwhile
			}
			last := own || !time.Now().Before(end)
			if again = !last && s.heed.anyInsideVfork(func(d *domain) bool { return d.guard.guarded() }); again {
				return // before anybody is stopped
			}
			s.closed = true
			defer func() {
				if s.closed {
					s.isOver()
				}
			}()
			waits, rerr := s.release(last)
			if err = errors.Join(err, rerr); waits {
				s.closed, again = false, true
				return
			}
			defer s.target.endGuardian()
			if err != nil && s.dying() {
				err = nil // nobody is left to be harmed
			}
			if s.table != nil {
				err = errors.Join(err, s.table.Close())
			}
			ended(err)
			s.finish()
		})
		if derr != nil {
			err = nil // closed before
			break
		}
		if again {
			time.Sleep(time.Millisecond)
		}
	}
	s.tracer.Close()
	return err
}

// isOver tells who waits that nothing of ours is left, or nothing that can be taken back.
func (s *Session) isOver() { s.overOnce.Do(func() { close(s.over) }) }

// endCalls takes threads back from the functions that handlers have called. No handler
// can call another one afterwards.
func (s *Session) endCalls() {
	s.closing = true
	s.try(func() { s.tracer.RecallAll(callGrace) })
}

// release gives back every process of the session. Unless this is the last attempt,
// processes that can't give up all just now are left as they are, and waits is set.
func (s *Session) release(last bool) (waits bool, err error) {
	var errs []error
	s.endCalls()
	for d := range s.settled() {
		s.try(func() {
			err := d.release(last)
			if !last && errors.Is(err, errInsideVfork) {
				waits, err = true, nil
			}
			errs = append(errs, err)
		})
	}
	if err = errors.Join(errs...); waits {
		return true, err
	}
	for _, kp := range s.registry.probes {
		kp.session, kp.placements = nil, nil
		if kp.ret != nil {
			kp.ret.end()
			kp.ret = nil
		}
	}
	s.registry.probes = nil
	for _, pt := range s.registry.patterns {
		pt.session = nil
	}
	s.registry.patterns = nil
	for _, sp := range s.syscalls.all {
		sp.own.session = nil
	}
	s.syscalls.all = nil
	return false, err
}

// release puts the address space back as it was and lets its processes go. Unless this is the last attempt it does nothing if that has to wait.
//
// Everything happens in one Freeze. While no thread runs, threads at a breakpoint or in
// a slot are moved to the same place in the original code. Then the code is put back.
// Then the region, which nobody can reach any more, is unmapped.
func (d *domain) release(last bool) error {
	if d.released {
		return nil
	}
	var errs []error
	ending, left, folded, waits := false, false, true, false
	err := d.space.Freeze(func(frozen *ptrace.Frozen) error {
		if waits = !last && d.guard.guarded() && d.insideVfork(); waits {
			return nil
		}
		try := func(f func()) { folded = d.session.try(f) && folded }
		if d.linker.busy {
			try(func() { d.linker.update() })
		}
		d.released = true
		delete(d.session.domains, d)
		d.steps = ptrace.StepsFor(len(d.space.Threads()))
		for _, th := range d.space.Threads() {
			try(func() { d.moveOut(th) })
		}
		errs = append(errs, d.followed.putBackAll(frozen, d.followed.rewritten(d.followed.all())), d.followed.putBackTable(frozen, func(*callLine) bool { return true }),
			d.followed.relays.gather(frozen, func(arch.Addr) bool { return true }))
		d.masks.giveBackMasks(frozen)
		d.session.tracer.SettleForks(d.space)
		try(d.recorder.drainLast)
		try(func() { d.followed.foldCalls(false) })
		try(d.detours.foldAll)
		try(d.upcalls.endBoards)
		ending = d.ending()
		errs = append(errs, d.text.While(frozen).RestoreAll(func(p *patch.Patch) bool { return d.unblocks(p.Addr()) }))
		if left = !ending && d.stuck(); !left {
			d.space.Part(frozen) // before the guard goes, and the code that threads stand in
			errs = append(errs, d.region.Wipe(), d.memory.unmap())
		}
		for _, p := range d.space.Processes() {
			errs = append(errs, d.session.tracer.Detach(p))
		}
		return nil
	})
	if waits {
		return errInsideVfork
	}
	err = errors.Join(append(errs, err)...)
	kept := errors.Is(err, errInsideVfork)
	if !kept { // else the guardian is to go on, when we end
		d.guard.told.Release()
	}
	if folded { // else somebody may still read there
		for _, m := range d.memory.shared {
			m.Unmap()
		}
	}
	d.linker.closeTable()
	d.neighbours.close()
	if err != nil && (left || kept || len(d.space.Threads()) > 0 && !ending) {
		return fmt.Errorf("giving back process %d: %w", d.session.pid, err)
	}
	return nil
}

// unblocks tells of a jump that it leads to code which keeps threads from blocking the signal by which the guard answers breakpoints (guard_masksites.go). It is
// taken back behind all others: we may be killed in between.
func (d *domain) unblocks(at arch.Addr) bool {
	st := d.sites[at]
	return st != nil && st.mask != nil
}

// unmap removes the injected region from the target.
func (m *memory) unmap() error {
	err := m.d.guard.removeGuard()
	if err == nil { // else it stays, with its memory
		gone := append(m.mapped(), m.d.followed.relays.unneeded()...)
		if givenBack != nil {
			givenBack(m.d, m.d.space, gone)
		}
		err = m.d.space.Unmap(gone...)
	}
	if errors.Is(err, ptrace.ErrNoThread) || errors.Is(err, ptrace.ErrExited) {
		return nil // the last threads are dying; the mapping harms nobody
	}
	return err
}

// guarded tells whether there is a guard to be given up.
func (g *guard) guarded() bool { return g.d.guard.state.Installed != 0 }

// removeGuard puts the program's own actions back, in each process. It comes after the original code and before
// the region goes: a process whose actions still lead there would die of its next signal.
func (g *guard) removeGuard() error {
	if !g.guarded() {
		return nil
	}
	done, err := recovery.Unguard(g.d.space, &g.d.guard.state)
	if err == nil && !done {
		err = ptrace.ErrNoThread
	}
	if err == nil {
		g.d.guard.state.Installed = 0
	}
	return err
}

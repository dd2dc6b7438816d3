package kprobes

import (
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// hooks is a Session as ptrace's Handler.
type hooks struct{ *Session }

// ending tells of a followed child's address space whether it is coming to its end. Its
// memory may be gone before that is reported, and attempts to use it then fail in many
// ways. The injected region is gone with it, also if the child runs another program by
// now.
func (d *domain) ending() bool {
	switch {
	case d == d.session.mainDomain():
		return false
	case d.space.Ending():
		return true
	}
	mapped, err := d.space.Maps()
	if err != nil || len(mapped) == 0 {
		return true
	}
	for _, a := range d.region.Arenas() {
		code := a.Extent().Code.Start
		if !a.Cave() && !slices.ContainsFunc(mapped, func(m procfs.Mapping) bool { return m.Range.Contains(code) }) {
			return true
		}
	}
	return false
}

// unlessEnding is err, if d has a future.
func (d *domain) unlessEnding(err error) error {
	if err != nil && d.ending() {
		return nil
	}
	return err
}

// forget drops an address space that no longer exists. Its probes are GONE.
func (s *Session) forget(d *domain) {
	s.heirs.settleLike(d)
	inChild := s.mainDomain() != nil && d != s.mainDomain()
	d.released = true
	d.guard.told.Release()
	delete(s.domains, d)
	for _, f := range d.followed.calls.Frames() {
		d.followed.end(f, true)
	}
	d.text.Forget()
	folded := true
	for _, f := range []func(){d.recorder.drainLast, func() { d.followed.foldCalls(true) }, d.detours.foldAll, d.upcalls.endBoards} {
		folded = s.try(f) && folded
	}
	if folded { // else somebody may still read there
		for _, m := range d.memory.shared {
			m.Unmap()
		}
		clear(d.memory.shared)
		d.beginRegion() // what it knew of its memory is megabytes
	}
	d.neighbours.close()
	for _, kp := range s.registry.probes {
		if kp.ret != nil {
			maps.DeleteFunc(kp.ret.returns, func(st *site, _ bool) bool { return st.domain == d })
		}
		had := len(kp.placements)
		if had > 0 {
			kp.absence.last = kp.stands()
		}
		kp.placements = slices.DeleteFunc(slices.Clone(kp.placements), func(pl placement) bool { return pl.domain == d })
		if had > 0 && len(kp.placements) == 0 {
			kp.Flags = kp.Flags&^FlagOptimized | FlagGone
			kp.absence.left(inChild && kp.byName())
		}
	}
	d.linker.closeTable()
}

// ThreadExit implements ptrace.Handler.
func (s hooks) ThreadExit(th *ptrace.Thread) {
	s.watchers.gone(th.TID)
	if d := s.spaces.Of(th.Proc.Space); d != nil { // what the heirs copy is not changed
		d.recorder.noteExit(th)
		d.followed.endOfThread(th)
		d.upcalls.unlearn(th)
	}
}

// Exited implements ptrace.Handler.
func (s hooks) Exited(p *ptrace.Process) {
	defer s.heirs.within()()
	if s.heirs.left(p.Space, len(p.Space.Processes())-1) {
	} else if d := s.spaces.Of(p.Space); d != nil {
		d.followed.endOfProcess(p.PID)
		d.guard.holdOther(p.Space, p)
		if len(p.Space.Processes()) == 1 {
			s.forget(d)
		}
	}
	s.watchers.ended(p)
	if p != s.main {
		return
	}
	status := &ExitStatus{Code: p.ExitStatus()}
	if p.Status.Reason == ptrace.Killed {
		status.Signal = p.Status.Signal
	}
	s.exit.Store(status)
	if !s.opts.Follow {
		s.finish()
	}
}

// Alone implements ptrace.Handler. Followed children may outlive the session's own process, such as a daemon's.
func (s hooks) Alone() {
	if s.exit.Load() != nil {
		s.finish()
	}
}

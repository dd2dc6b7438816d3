package kprobes

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/recovery"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Handlers of signals often run with all signals blocked, those of Go always. A
// breakpoint in there would end the process after the tracer's death. While the tracer
// lives, it would take the guard away for a moment, in all threads. So while there is a
// guard the program's handlers do not block SIGTRAP, nor SIGILL, which bytes of jumps
// may raise.
//
// A handler that the program sets later on is found when a breakpoint in it has taken the guard away.

// unmaskAgain is how often it is looked for new handlers.
const unmaskAgain = time.Second

func setOf(sig unix.Signal) ptrace.Sigset { return 1 << (uint(sig) - 1) }

// unmaskHandlers changes the target's present actions so that handlers run without
// blocking them. No thread may change an action between our reading and our writing it.
func (g *guard) unmaskHandlers() error {
	return g.d.space.Freeze(func(frozen *ptrace.Frozen) error {
		g.d.space.Unblock(g.noteUnblocked) // threads that are in such handlers
		return g.unmaskAll(frozen)
	})
}

// unmaskAll is unmaskHandlers in a Freeze.
func (g *guard) unmaskAll(*ptrace.Frozen) error {
	g.d.guard.masksSeen = time.Now()
	for _, proc := range g.d.space.Processes() {
		st, err := procfs.ReadStatus(proc.PID, 0)
		if err != nil || !g.mayMask(st) {
			continue
		}
		err = proc.Remote(func(r *ptrace.Remote) error { return g.d.guard.unmask(r, st, g.d.region.NoteGuard) })
		if err != nil && (proc == g.d.session.main || !errors.Is(err, ptrace.ErrNoThread) && !ptrace.Departed(err)) {
			return err
		}
	}
	return nil
}

// mayMask tells that a process has handlers of its own.
func (g *guard) mayMask(st procfs.Status) bool {
	return ptrace.Sigset(st.SigCgt)&^ptrace.Sigset(g.state.Installed>>1) != 0
}

// unmask notes each signal at once: the tracer may be killed in between.
func (g *guard) unmask(r *ptrace.Remote, st procfs.Status, note func(trampoline.GuardState) error) error {
	for sig := unix.Signal(1); sig <= recovery.LastSignal; sig++ {
		if !st.SigCgt.Has(int(sig)) || g.has(sig) {
			continue
		}
		changed, err := r.Unmask(sig, setOf(unix.SIGTRAP)|setOf(unix.SIGILL), g.state.Place.ScratchAction())
		if err != nil {
			return err
		}
		for k, trap := range recovery.Traps {
			if changed.Has(trap) {
				g.state.Unmasked[k] |= uint64(setOf(sig))
			}
		}
		if changed != 0 {
			if err := note(g.state); err != nil {
				return err
			}
		}
	}
	return nil
}

// GuardLost implements ptrace.Handler.
func (s hooks) GuardLost(p *ptrace.Process) {
	defer s.heirs.within()()
	if s.at(p.Space) == nil {
		return
	}
	for d := range s.domains {
		if d.space != p.Space || !d.guard.has(unix.SIGTRAP) || time.Since(d.guard.masksSeen) < unmaskAgain {
			continue
		}
		if err := d.guard.unmaskHandlers(); err != nil && !errors.Is(err, ptrace.ErrNoThread) && !ptrace.Departed(err) {
			s.warn("the process may not survive if gokprobe is killed: %v", d.unlessEnding(err))
		}
	}
}

// GuardTaken implements ptrace.Handler.
func (s hooks) GuardTaken(p *ptrace.Process) {
	if s.alike(p.Space) == nil {
		return
	}
	p.Space.Protect(0, 0) // a breakpoint would call the program's handler
}

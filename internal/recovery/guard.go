package recovery

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Traps are the signals that a program's handlers do not block while there is a guard, in the order of GuardState.Unmasked.
var Traps = [...]unix.Signal{unix.SIGTRAP, unix.SIGILL}

// LastSignal is _NSIG (asm/signal.h).
const LastSignal = 64

// ErrInsideVfork is why something has not been done.
var ErrInsideVfork = errors.New("a process is inside vfork(2)")

// Unguard makes all processes that run in the space give up the guard. done reports
// whether at least one has. Processes that are about to leave the space need not.
func Unguard(space *ptrace.Space, g *trampoline.GuardState) (done bool, err error) {
	waits := false
	space.Protect(0, 0)
	for _, p := range space.Processes() {
		switch err := p.Remote(func(r *ptrace.Remote) error { return RemoveGuard(r, g) }); {
		case err == nil:
			done = true
		case p.InsideVfork():
			waits = true
		case !errors.Is(err, ptrace.ErrNoThread) && !ptrace.Departed(err):
			return done, err
		}
	}
	if waits {
		return done, ErrInsideVfork
	}
	return done, nil
}

// RemoveGuard puts the own actions back of the process that r makes calls in.
func RemoveGuard(r *ptrace.Remote, g *trampoline.GuardState) error {
	const lastGuarded = 31
	var errs []error
	for sig := unix.Signal(1); sig <= lastGuarded; sig++ {
		if g.Installed>>uint(sig)&1 != 0 {
			errs = append(errs, r.Unguard(sig, g.Handler, g.Place.SavedAction(int(sig)), g.Place.ScratchAction()))
		}
	}
	errs = append(errs, mask(r, g)...) // also signals that were unmasked before the guard took them
	return errors.Join(errs...)
}

// mask restores the signals that handlers blocked before there was a guard.
func mask(r *ptrace.Remote, g *trampoline.GuardState) (errs []error) {
	for sig := unix.Signal(1); sig <= LastSignal; sig++ {
		var blocked ptrace.Sigset
		for k, trap := range Traps {
			if ptrace.Sigset(g.Unmasked[k]).Has(sig) {
				blocked |= 1 << (uint(trap) - 1)
			}
		}
		if blocked != 0 {
			errs = append(errs, r.Mask(sig, blocked, g.Place.ScratchAction()))
		}
	}
	return errs
}

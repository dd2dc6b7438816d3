package kprobes

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// Masks of signals that threads have while the tracer holds signals back, until they
// are out of a copy or body (ptrace.Hold). If we are killed meanwhile they keep those:
// a thread would never again get a signal that is sent. So each is noted in the region,
// and a recovery gives it back. What can't be noted is not changed.

// heldMasks are the threads whose masks are noted, in their places.
type heldMasks [trampoline.MaxHeldMasks]*ptrace.Thread

// KeepMask implements ptrace.Handler.
func (s hooks) KeepMask(th *ptrace.Thread, own, instead ptrace.Sigset) (noted bool) {
	if d := s.at(th.Proc.Space); d != nil && s.domains[d] {
		return d.masks.keepMask(th, own, instead)
	}
	return false
}

func (mk *masks) keepMask(th *ptrace.Thread, own, instead ptrace.Sigset) (noted bool) {
	n, ok := mk.maskPlace(th)
	if !ok || mk.d.region.NoteHeldMask(n, trampoline.HeldMask{TID: th.TID, Own: uint64(own), Instead: uint64(instead)}) != nil {
		return false
	}
	mk.heldMasks[n] = th
	return true
}

// maskPlace is a place where nothing is noted, or only of a thread that is gone.
func (mk *masks) maskPlace(th *ptrace.Thread) (n int, ok bool) {
	for n, other := range mk.heldMasks {
		if other == nil || other == th {
			return n, true
		}
	}
	alive := map[*ptrace.Thread]bool{}
	for _, th := range mk.d.space.Threads() {
		alive[th] = true
	}
	for n, other := range mk.heldMasks {
		if !alive[other] {
			return n, true
		}
	}
	return 0, false
}

// MaskGiven implements ptrace.Handler.
func (s hooks) MaskGiven(th *ptrace.Thread) {
	for d := range s.domains {
		for n, other := range d.masks.heldMasks {
			if other == th {
				d.masks.heldMasks[n] = nil
				_ = d.region.NoteHeldMask(n, trampoline.HeldMask{})
			}
		}
	}
}

// Lessened implements ptrace.Handler.
func (s hooks) Lessened(th *ptrace.Thread, m ptrace.Sigset) bool {
	const never = ptrace.Sigset(1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)) // in a mask
	if d := s.alike(th.Proc.Space); d != nil {
		for _, set := range d.masks.sets {
			if less, ok := set.Unforced(); ok && less&^never == m {
				return true
			}
		}
	}
	return false
}

package ptrace

import (
	"slices"

	"golang.org/x/sys/unix"
)

// owed are signals of the program's that we keep, or have sent again, and the mask that we have changed for them.
type owed struct {
	held     []*Siginfo // until the thread is out of a slot
	mask     *Sigset    // what the thread blocks by itself, to be restored at release
	unblock  bool       // unblock is to look at the mask then
	released bool       // those in held are to be delivered when it is resumed
	trap     *Siginfo   // a SIGTRAP of somebody that came in one with a breakpoint's
	resent   []resentSignal
	requeued []Siginfo // SIGTRAPs and SIGILLs that were sent again with their siginfo; the last few
}

// resentSignal was sent again by tgkill, to be given its own siginfo when it is reported.
type resentSignal struct {
	*Siginfo
	waits bool // for the thread to unblock it
}

// any tells whether signals, or a mask, wait for release.
func (o *owed) any() bool { return len(o.held) > 0 || o.mask != nil }

// take takes those that were released, in their order; there may be none.
func (o *owed) take() []*Siginfo {
	if !o.released {
		return nil
	}
	held := o.held
	o.released, o.held = false, nil
	return held
}

// first puts a signal in front of those held, which are released.
func (o *owed) first(info *Siginfo) {
	o.held, o.released = append([]*Siginfo{info}, o.held...), true
}

// trapsWait notes that the SIGTRAPs which were sent again wait for the thread to unblock them.
func (o *owed) trapsWait() {
	for i := range o.resent {
		if o.resent[i].Signo() == unix.SIGTRAP {
			o.resent[i].waits = true
		}
	}
}

// discardStops forgets stop signals that are held. release is still to be called for the mask.
func (o *owed) discardStops() {
	o.held = slices.DeleteFunc(o.held, func(info *Siginfo) bool { return stopSignals.Has(info.Signo()) })
}

// requeue notes one that was sent again with its siginfo. A program that fetches them without being stopped leaves nothing but these few.
func (o *owed) requeue(info *Siginfo) {
	const few = 16
	if len(o.requeued) == few {
		o.requeued = slices.Delete(o.requeued, 0, 1)
	}
	o.requeued = append(o.requeued, *info)
}

// takeRequeued tells whether info is of one that was sent again with its siginfo, and forgets that.
func (o *owed) takeRequeued(info *Siginfo) bool {
	i := slices.Index(o.requeued, *info)
	if i >= 0 {
		o.requeued = slices.Delete(o.requeued, i, i+1)
	}
	return i >= 0
}

// sentAgain is a signal that was sent again, 0 if there is none.
func (o *owed) sentAgain() unix.Signal {
	switch {
	case len(o.resent) > 0:
		return o.resent[0].Signo()
	case len(o.requeued) > 0:
		return o.requeued[0].Signo()
	}
	return 0
}

// forgetSentAgain forgets what sentAgain tells of.
func (o *owed) forgetSentAgain() {
	if len(o.resent) > 0 {
		o.resent = o.resent[1:]
	} else {
		o.requeued = o.requeued[1:]
	}
}

// takeResent takes the signal of that number that was sent again first.
func (o *owed) takeResent(sig unix.Signal) (r resentSignal, ok bool) {
	for i, r := range o.resent {
		if r.Signo() == sig {
			o.resent = slices.Delete(o.resent, i, i+1)
			return r, true
		}
	}
	return resentSignal{}, false
}

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

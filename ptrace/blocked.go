package ptrace

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// blocked is what a thread is believed to block by itself, as it was last seen. Exceptions of ours change what it blocks (trap.go,
// faultaction.go), so after one of them the kernel does not tell.
type blocked struct {
	trap          bool    // SIGTRAP
	all           bool    // everything, which may be for a moment or for good
	faults        Sigset  // those of faultSignals
	inTrapHandler bool    // a SIGTRAP was delivered, and its handler may still run
	seized        *Sigset // when it was seized, or when that was seen later; nil if another thread of ours has made it
	seizedAt      time.Time
}

// child is what a thread blocks that this one makes (clone(2)).
func (b blocked) child() blocked { return blocked{trap: b.trap, faults: b.faults} }

// seen notes m, read at a stop that no breakpoint caused. pending tells whether an exception waits that is not reported yet: what it
// has unblocked is believed to be blocked still. A full mask says nothing of single signals: see Sigset.Full.
func (b *blocked) seen(m Sigset, pending func() bool) {
	b.all = m.Full()
	b.noteSeized(m)
	b.sawFaults(m, pending)
	switch {
	case b.all:
	case m.Has(unix.SIGTRAP):
		b.trap = true
	case b.trap:
		b.trap = pending()
	}
}

// seenLess is seen where SIGTRAP and SIGILL were taken out of nearly all signals for the guard: m does not tell of those.
func (b *blocked) seenLess(m Sigset, pending func() bool) {
	b.all = (m | forced).Full()
	b.noteSeized(m)
	b.sawFaults(m|b.faults&forced, pending)
}

// noteSeized keeps m as what a seized thread blocks.
func (b *blocked) noteSeized(m Sigset) {
	if b.seized != nil {
		*b.seized, b.seizedAt = m, time.Now()
	}
}

// sawFaults is seen for faultSignals.
func (b *blocked) sawFaults(m Sigset, pending func() bool) {
	switch now := m & allFaults; {
	case b.all:
	case now == b.faults, b.faults&^now == 0, !pending():
		b.faults = now
	}
}

// unblocked is what we have changed of what a thread blocks, and owe to it.
type unblocked struct {
	is        bool   // it would block SIGTRAP as all other signals, if there were no guard
	from      Sigset // what it would block then
	sentWaits bool   // a SIGTRAP or SIGILL that was sent waits, blocked, or has: see blockAgain
	owesBlock bool   // it is to block SIGTRAP when it next stops for one that was sent
}

// stands tells of m, which a thread blocks, that it may be what was left of the set. If not, the program has set another mask since.
func (u *unblocked) stands(m Sigset) bool { return m|forced == u.from|forced || (m | forced).Full() }

// blocksLess notes that the thread was made to block fewer signals than from.
func (u *unblocked) blocksLess(from Sigset) { u.is, u.from = true, from }

// guardView is what is known of the process's action for SIGTRAP from this thread's stops.
type guardView struct {
	asked    bool      // the action for the SIGTRAP that will be reported has been read
	told     arch.Addr // if not 0: where the thread stands with that one, of which the Handler has been told
	restored bool      // see RestoreTrap
	unsure   bool      // the thread has come to a breakpoint since the guard was last seen in its place
	next     trapSight // of the breakpoint that it may have come to already, and stops for only now
	answered bool      // and by the last one it is known to have blocked SIGTRAP, which it does again
}

package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhatAMaskTells: an exception that is not reported yet has unblocked its signal, and a full mask may be one for a moment.
func TestWhatAMaskTells(t *testing.T) {
	trap, segv, usr := sigbit(unix.SIGTRAP), sigbit(unix.SIGSEGV), sigbit(unix.SIGUSR1)
	for _, c := range []struct {
		name    string
		before  blocked
		seen    Sigset
		pending bool
		want    blocked
	}{
		{name: "nothing", seen: usr},
		{name: "SIGTRAP", seen: trap | usr, want: blocked{trap: true}},
		{name: "SIGTRAP no more", before: blocked{trap: true}, seen: usr},
		{name: "SIGTRAP no more, since it is raised", before: blocked{trap: true}, pending: true, want: blocked{trap: true}},
		{name: "a fault's", seen: segv, want: blocked{faults: segv}},
		{name: "a fault's no more", before: blocked{faults: segv}},
		{name: "a fault's no more, since it is raised", before: blocked{faults: segv}, pending: true, want: blocked{faults: segv}},
		{name: "everything", before: blocked{trap: true, faults: segv}, seen: allSignals, want: blocked{all: true, trap: true, faults: segv}},
		{name: "everything, of one that blocked nothing", seen: allSignals &^ unblockable, want: blocked{all: true}},
		{name: "no longer everything", before: blocked{all: true}, seen: trap, want: blocked{trap: true}},
	} {
		got := c.before
		if got.seen(c.seen, func() bool { return c.pending }); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestTheMaskOfASeizedThreadIsKeptFresh, and is of no child.
func TestTheMaskOfASeizedThreadIsKeptFresh(t *testing.T) {
	m := Sigset(1)
	b := blocked{seized: &m, inTrapHandler: true, trap: true}
	if b.seen(7, func() bool { return false }); m != 7 {
		t.Errorf("it is %x", m)
	}
	b.trap = true
	if c := b.child(); c != (blocked{trap: true}) {
		t.Errorf("a child's is %+v", c)
	}
}

// TestWhoIsMadeToBlockLess: nearly all signals, with those that breakpoints raise.
func TestWhoIsMadeToBlockLess(t *testing.T) {
	for _, c := range []struct {
		set  Sigset
		ok   bool
		want Sigset
	}{
		{allSignals, true, allSignals &^ forced},
		{sigbit(unix.SIGTRAP), false, 0},
		{allSignals &^ sigbit(unix.SIGTRAP), false, allSignals &^ forced},
		{allSignals &^ sigbit(unix.SIGINT), true, allSignals &^ forced &^ sigbit(unix.SIGINT)},
	} {
		if got, ok := c.set.Unforced(); ok != c.ok || got != c.want {
			t.Errorf("%x: %x, %v", uint64(c.set), uint64(got), ok)
		}
	}
}

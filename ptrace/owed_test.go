package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// signos are the numbers of signals.
func signos(infos []*Siginfo) (list []unix.Signal) {
	for _, info := range infos {
		list = append(list, info.Signo())
	}
	return list
}

// TestHeldSignalsAreTakenInTheirOrder, once, and not before they are released.
func TestHeldSignalsAreTakenInTheirOrder(t *testing.T) {
	var o owed
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2} {
		o.held = append(o.held, siginfoOf(sig, -1))
	}
	if got := o.take(); got != nil || !o.any() {
		t.Errorf("before the release %v are taken", signos(got))
	}
	o.first(siginfoOf(unix.SIGINT, -1))
	got := signos(o.take())
	if len(got) != 3 || got[0] != unix.SIGINT || got[1] != unix.SIGUSR1 || got[2] != unix.SIGUSR2 {
		t.Errorf("%v are taken", got)
	}
	if again := o.take(); again != nil || o.any() || o.released {
		t.Errorf("again %v are taken", signos(again))
	}
}

// TestAMaskAloneIsOwed: a thread whose mask was changed has something to be given back, also if no signal has come.
func TestAMaskAloneIsOwed(t *testing.T) {
	var none Sigset
	if o := (owed{mask: &none}); !o.any() {
		t.Error("nothing is owed")
	}
}

// TestOnlyStopSignalsAreDiscarded, wherever they stand.
func TestOnlyStopSignalsAreDiscarded(t *testing.T) {
	var o owed
	for _, sig := range []unix.Signal{unix.SIGTSTP, unix.SIGUSR1, unix.SIGTTOU, unix.SIGTTIN, unix.SIGTERM} {
		o.held = append(o.held, siginfoOf(sig, 0))
	}
	if o.discardStops(); len(o.held) != 2 || o.held[0].Signo() != unix.SIGUSR1 || o.held[1].Signo() != unix.SIGTERM {
		t.Errorf("%v are left", signos(o.held))
	}
}

// TestASignalThatWasSentAgainIsFoundOnce, the oldest of its number first.
func TestASignalThatWasSentAgainIsFoundOnce(t *testing.T) {
	var o owed
	for _, pid := range []byte{1, 2} {
		for _, sig := range []unix.Signal{unix.SIGTRAP, unix.SIGUSR1} {
			info := siginfoOf(sig, 0)
			info[16] = pid
			o.resent = append(o.resent, resentSignal{Siginfo: info})
		}
	}
	o.trapsWait()
	for _, want := range []byte{1, 2} {
		r, ok := o.takeResent(unix.SIGTRAP)
		if !ok || r.Siginfo[16] != want || !r.waits {
			t.Errorf("SIGTRAP: %v, of %d, waits: %v", ok, r.Siginfo[16], r.waits)
		}
	}
	if _, ok := o.takeResent(unix.SIGTRAP); ok || len(o.resent) != 2 {
		t.Errorf("%d are left", len(o.resent))
	}
	if r, ok := o.takeResent(unix.SIGUSR1); !ok || r.Siginfo[16] != 1 || r.waits {
		t.Errorf("SIGUSR1: %v, waits: %v", ok, r.waits)
	}
}

package kprobes_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// whim is a session whose return probes' handlers do anything to any of them.
type whim struct {
	t      *testing.T
	rng    *rand.Rand
	s      *kprobes.Session
	probes []*kprobes.Kretprobe
}

func (w *whim) act() int {
	if w.rng.IntN(10) > 0 {
		return b2i(w.rng.IntN(8) == 0)
	}
	rp := w.probes[w.rng.IntN(len(w.probes))]
	switch w.rng.IntN(8) {
	case 0, 1:
		ok(w.t, w.s.UnregisterKretprobe(rp))
		rp.KP.Addr, rp.KP.Flags = 0, 0
	case 2, 3:
		w.register(rp)
	case 4:
		_ = w.s.DisableKretprobe(rp) // it may not be registered
	case 5:
		_ = w.s.EnableKretprobe(rp)
	case 6:
		panic("a handler's")
	}
	return 0
}

func (w *whim) register(rp *kprobes.Kretprobe) {
	if err := w.s.RegisterKretprobe(rp); err != nil && !errors.Is(err, unix.EINVAL) { // it is already
		w.t.Errorf("register: %v", err)
	}
}

func (w *whim) follow(symbol string) {
	rp := follow(symbol, 1+w.rng.IntN(8))
	rp.EntryHandler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return w.act() }
	rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		if regs.IP() != ri.RetAddr {
			w.t.Errorf("IP %s, RetAddr %s", regs.IP(), ri.RetAddr)
		}
		regs.SetIP(4711)
		return w.act()
	}
	w.probes = append(w.probes, rp)
}

// TestHandlersMayDoAnything to their own and to other return probes, at the entry and at the
// return of a call, in the middle of a chain, in recursion and while other threads call.
func TestHandlersMayDoAnything(t *testing.T) {
	prog := start(t, "conform")
	want := prog.Do("call nested 20", "ret")
	for round := range 6 {
		w := &whim{t: t, rng: rand.New(rand.NewPCG(uint64(round), 0))}
		w.s = attach(t, prog.PID(), kprobes.Options{NoBoost: round%2 == 0, Log: func(string) {}})
		for _, symbol := range []string{"counted", "nested", "third", "counted", "nested", "third"} {
			w.follow(symbol)
		}
		for range 8 {
			for _, rp := range w.probes {
				w.register(rp)
				ok(t, w.s.EnableKretprobe(rp))
			}
			if got := prog.Do("bump 40", "did"); got != "did 160" {
				t.Errorf("got %q", got)
			}
			if got := prog.Do("call nested 20", "ret"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		closeSession(t, w.s)
		prog.CheckClean()
	}
	wantRight(t, prog)
}

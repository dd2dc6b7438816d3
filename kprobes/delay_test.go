package kprobes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// forever is a delay that only the end of something else ends.
const forever = 100 * time.Hour

// TestDelayedThreadsGoOn: two delays of a hit add up, in every way that a hit is handled.
func TestDelayedThreadsGoOn(t *testing.T) {
	const d = 20 * time.Millisecond
	for _, m := range modes {
		prog := start(t, "call")
		s := attach(t, prog.PID(), kprobes.Options{})
		var began time.Time
		kp := m.caller("probed", func(r *kprobes.Regs) {
			began = time.Now()
			r.Delay(d)
			r.Delay(-d) // none
			r.Delay(d)
		})
		register(t, s, kp)
		for range 10 {
			wantSays(t, prog, "go 30", "ret 10")
			if took := time.Since(began); took < 2*d {
				t.Errorf("%s: it took %v, want %v at least", m, took, 2*d)
			}
		}
		wantHits(t, kp, 10)
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestDelaysOfManyThreads: all are delayed at once, and the session can be used meanwhile. Close lets them go.
func TestDelaysOfManyThreads(t *testing.T) {
	const threads = 1000
	for _, m := range modes {
		prog := start(t, "threads", fmt.Sprint(threads))
		s := attach(t, prog.PID(), kprobes.Options{})
		all := make(chan bool)
		n := 0
		register(t, s, m.caller("foo", func(r *kprobes.Regs) {
			r.Delay(forever)
			if n++; n == threads {
				close(all)
			}
		}))
		prog.Send("go 3")
		<-all
		toggle(t, s, m.probe("main"), 5)
		at, err := s.Alloc(4096)
		ok(t, err)
		ok(t, s.Free(at, 4096))
		if n != threads {
			t.Errorf("%d hits, want %d", n, threads)
		}
		closeSession(t, s)
		prog.Expect(fmt.Sprintf("went %d", 3*threads))
		prog.CheckClean()
		wantRight(t, prog)
	}
}

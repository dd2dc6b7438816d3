package kprobes_test

import (
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestTogglesLoseNoHit: 8 goroutines register, disable, enable and unregister probes, two
// of them on the very site that 8 threads hit, 10,000 times in all. The probe that
// stays counts every call. Then many goroutines close the session at once.
func TestTogglesLoseNoHit(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	always := boosted.probe("target")
	register(t, s, always)
	prog.Send("threads 8 20000 target")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			toggle(t, s, modes[g%2].probe([]string{"target", "foo", "target2", "recurse"}[g%4]), 1250)
		})
	}
	prog.Expect("sum")
	wg.Wait()
	wantHits(t, always, 8*20000)
	for range 10 {
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	prog.CheckClean()
	wantRight(t, prog)
}

func toggle(t *testing.T, s *kprobes.Session, kp *kprobes.Kprobe, n int) {
	for i := range n {
		kp.Addr, kp.Flags = 0, 0
		steps := []func(*kprobes.Kprobe) error{s.RegisterKprobe, s.UnregisterKprobe}
		if i%3 == 0 {
			steps = []func(*kprobes.Kprobe) error{s.RegisterKprobe, s.DisableKprobe, s.EnableKprobe, s.UnregisterKprobe}
		}
		for _, step := range steps {
			if err := step(kp); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// TestPositionDependentStatic: an executable at 0x400000 has no free memory below it.
func TestPositionDependentStatic(t *testing.T) {
	for _, m := range modes {
		prog := testprog.Start(t, testprog.Build(t, "prey", "-static", "-no-pie"))
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := m.probe("target")
		register(t, s, kp)
		if kp.Addr >= 1<<24 {
			t.Errorf("target is at %s", kp.Addr)
		}
		prog.Do("threads 4 1000 target", "sum")
		wantHits(t, kp, 4000)
		closeSession(t, s)
		wantRight(t, prog)
	}
}

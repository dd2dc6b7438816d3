package kprobes_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestMissedByOptimizedProbes (B26, B30): a handler at the end of foo calls foo, whose entry has a jump.
// These hits are missed, whatever the jump's detour does, and no hit of a thread that runs
// no handler is; the site keeps its jump.
func TestMissedByOptimizedProbes(t *testing.T) {
	const threads, calls, each = 4, 400, 10
	type missed struct {
		kp    *kprobes.Kprobe
		check func(want uint64)
	}
	cases := []struct {
		name string
		make func(t *testing.T, s *kprobes.Session) missed
	}{
		{"counted", func(t *testing.T, s *kprobes.Session) missed {
			kp := counting("foo")
			register(t, s, kp)
			return missed{kp, func(uint64) {}}
		}},
		{"recorded", func(t *testing.T, s *kprobes.Session) missed {
			var records atomic.Uint64
			kp := recording(t, "foo", func(*kprobes.Kprobe, *kprobes.HitRecord) { records.Add(1) })
			register(t, s, kp)
			return missed{kp, func(want uint64) {
				if got := records.Load() + uint64(lost(kp)); got != want {
					t.Errorf("%d records, want %d", got, want)
				}
			}}
		}},
		{"handled", func(t *testing.T, s *kprobes.Session) missed {
			var runs atomic.Uint64
			kp := calling("foo", &runs)
			register(t, s, kp)
			return missed{kp, func(want uint64) {
				if got := runs.Load(); got != want {
					t.Errorf("the handler ran %d times, want %d", got, want)
				}
			}}
		}},
		{"followed", func(t *testing.T, s *kprobes.Session) missed {
			rp := follow("foo", 50)
			registerReturns(t, s, rp)
			return missed{&rp.KP, func(want uint64) {
				if rp.Hits() != want || rp.NMissed() != 0 {
					t.Errorf("%d returns and %d missed, want %d", rp.Hits(), rp.NMissed(), want)
				}
			}}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			prog := start(t, "threads", fmt.Sprint(threads))
			s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
			foo := symbol(t, s, "foo")
			at := instructions(t, s, prog, "foo")
			var hits, made uint64
			end := &kprobes.Kprobe{Addr: at[len(at)-1], PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
				if hits++; hits%each == 0 {
					made++
					wantCall(t, r, 16, foo, 5)
				}
				return 0
			}}
			m := c.make(t, s)
			register(t, s, end)
			prog.Do("go 1", "went") // where a return site is
			wantOptimized(t, s, m.kp)
			prog.Do(fmt.Sprintf("go %d", calls), "went")
			wantOptimized(t, s, m.kp)
			before := m.kp.NMissed()
			prog.Do("go 1", "went")
			if made == 0 || before == 0 || m.kp.NMissed() != made || end.NMissed() != made {
				t.Errorf("%d calls, %d and %d hits were missed", made, m.kp.NMissed(), end.NMissed())
			}
			wantHits(t, m.kp, threads*(calls+2))
			wantHits(t, end, threads*(calls+2))
			closeSession(t, s)
			m.check(threads * (calls + 2))
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

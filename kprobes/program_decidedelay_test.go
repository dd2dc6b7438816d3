package kprobes_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestChosenThreadsAreDelayedAndReturn: one in 50 of all threads' hits is chosen, in the target; the body does not run there, and the
// thread is delayed. The others go on without a stop. It ends by itself, or in the middle.
func TestChosenThreadsAreDelayedAndReturn(t *testing.T) {
	const threads, calls, n, seed = 4, 5000, 50, 11
	for _, d := range []time.Duration{0, 100 * time.Microsecond, forever} {
		for _, optimized := range []bool{true, false} {
			t.Run(fmt.Sprint(d, " ", optimized), func(t *testing.T) {
				prog := start(t, "threads", fmt.Sprint(threads))
				s := attach(t, prog.PID(), kprobes.Options{NoOptimize: !optimized})
				var ran atomic.Uint64
				all := make(chan bool)
				kp := deciding(t, "foo", oneOf(n, seed), func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
					v, _ := r.Arg(0)
					ok(t, r.ReturnNow(3*v+1))
					r.Delay(d)
					if ran.Add(1) == threads && d == forever {
						close(all)
					}
					return 1
				})
				register(t, s, kp)
				if optimized {
					wantOptimized(t, s, kp)
				}
				prog.Send(fmt.Sprintf("go %d", calls))
				if d == forever {
					<-all
					toggle(t, s, boosted.probe("main"), 3)
					if got := ran.Load(); got != threads {
						t.Errorf("%d threads are delayed, want %d", got, threads)
					}
					wantDecided(t, kp, ran.Load(), n, seed)
					closeSession(t, s)
				}
				prog.Expect("went")
				wantDecided(t, kp, ran.Load(), n, seed)
				if d != forever {
					wantHits(t, kp, threads*calls)
				}
				closeSession(t, s)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

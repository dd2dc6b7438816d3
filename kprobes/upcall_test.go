package kprobes_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// calling is a probe whose handler runs in the tracer, and counts itself.
func calling(symbol string, runs *atomic.Uint64) *kprobes.Kprobe {
	return &kprobes.Kprobe{SymbolName: symbol, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		runs.Add(1)
		return 0
	}}
}

func TestUpcallsAreExact(t *testing.T) {
	for _, threads := range []int{1, 8} {
		calls := 40_000 / threads
		prog := start(t, "threads", fmt.Sprint(threads))
		s := attach(t, prog.PID(), kprobes.Options{})
		var runs atomic.Uint64
		kp := calling("foo", &runs)
		register(t, s, kp)
		wantOptimized(t, s, kp)
		begin := time.Now()
		prog.Do(fmt.Sprintf("go %d", calls), "went")
		spent := time.Since(begin)
		wantHits(t, kp, uint64(threads*calls))
		if got := runs.Load(); got != uint64(threads*calls) {
			t.Errorf("the handler ran %d times, want %d", got, threads*calls)
		}
		t.Logf("%d threads: of %d hits %d were upcalls, %v a hit", threads, threads*calls, s.Upcalls(), spent/time.Duration(threads*calls))
		closeSession(t, s)
		prog.CheckClean()
		wantRight(t, prog)
	}
}

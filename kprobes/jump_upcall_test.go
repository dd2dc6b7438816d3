package kprobes_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// calling is a probe whose handler runs in the tracer, and counts itself.
func calling(symbol string, runs *atomic.Uint64) *kprobes.Kprobe {
	return &kprobes.Kprobe{SymbolName: symbol, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		runs.Add(1)
		return 0
	}}
}

// moreUpcalls tells whether a test runs another round, its nth, to see as many upcalls as it
// likes. A hit is an upcall only if the tracer has a processor just then, so a busy machine has
// few of them, or none for long: after some rounds a single one is enough.
func moreUpcalls(n, upcalls, enough uint64) bool {
	if !testprog.CallsTracer() {
		return n < 5
	}
	return upcalls < enough && n < 100 || upcalls == 0 && n < 4000
}

// byUpcall reports whether r's hit is one that a test of upcalls is about: all are, by their stops, on a processor that
// has no upcalls.
func byUpcall(r *kprobes.Regs) bool { return kprobes.InUpcall(r) || !testprog.CallsTracer() }

// wantUpcalls checks that hits were upcalls where there are upcalls, and none where there are none.
func wantUpcalls(t *testing.T, n uint64) {
	t.Helper()
	if (n > 0) != testprog.CallsTracer() {
		t.Errorf("%d hits were upcalls; this processor has them: %v", n, testprog.CallsTracer())
	}
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

// TestUpcallsKeepAllRegisters: what a program sees of its registers, XSAVE area included, is
// the same across an upcall.
func TestUpcallsKeepAllRegisters(t *testing.T) {
	prog := start(t, "keepregs")
	s := attach(t, prog.PID(), kprobes.Options{})
	var runs atomic.Uint64
	kp := calling("subject", &runs)
	register(t, s, kp)
	wantOptimized(t, s, kp)
	s.PollAlways()
	for n := uint64(1); moreUpcalls(n, s.Upcalls(), 100); n++ {
		prog.Do("run 2000", "ran")
		wantHits(t, kp, 2000*n)
	}
	wantUpcalls(t, s.Upcalls())
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestUpcallsOfGo: goroutines move between threads, and their stacks are small.
func TestUpcallsOfGo(t *testing.T) {
	prog := start(t, "gosrv")
	unprobed := prog.Do("threads 8 20000", "sum")
	s := attach(t, prog.PID(), kprobes.Options{})
	var runs atomic.Uint64
	kp := calling("main.target", &runs)
	register(t, s, kp)
	wantOptimized(t, s, kp)
	s.PollAlways()
	if probed := prog.Do("threads 8 20000", "sum"); probed != unprobed {
		t.Errorf("probed: %q, unprobed: %q", probed, unprobed)
	}
	wantHits(t, kp, 8*20_000)
	t.Logf("%d upcalls", s.Upcalls())
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

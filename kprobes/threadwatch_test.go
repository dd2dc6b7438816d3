package kprobes_test

import (
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// family is what a ThreadWatcher was told.
type family struct {
	mu      sync.Mutex
	alive   map[int]bool
	creator map[int]int
	gone    int
}

func watch(t *testing.T, s *kprobes.Session) (f *family, stop func()) {
	f = &family{alive: map[int]bool{}, creator: map[int]int{}}
	stop = s.WatchThreads(kprobes.ThreadWatcher{
		Born: func(creator, tid int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if creator == tid {
				t.Errorf("thread %d has made itself", tid)
			}
			f.alive[tid], f.creator[tid] = true, creator
		},
		Gone: func(tid int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.alive, tid)
			f.gone++
		},
	})
	return f, stop
}

// Whoever comes to a probe has been told of, unless it was there before.
func TestThreadsAreToldBeforeTheyRun(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	f, stop := watch(t, s)
	kp := boosted.probe("foo")
	strangers := 0
	kp.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.creator[regs.TID()] != prog.PID() {
			strangers++
		}
		return 0
	}
	register(t, s, kp)
	prog.Do("threads 40 3 foo", "sum")
	wantHits(t, kp, 120)
	f.mu.Lock()
	if strangers != 0 || len(f.creator) > 40 || len(f.creator) < 30 { // IDs may come again
		t.Errorf("%d hits of threads that nobody told of, %d threads made", strangers, len(f.creator))
	}
	f.mu.Unlock()
	stop()
	prog.Do("threads 1 1 foo", "sum")
	if len(f.creator) > 40 {
		t.Error("told after the end")
	}
	closeSession(t, s)
	wantRight(t, prog)
}

func TestChildrenAreToldWithTheirCreators(t *testing.T) {
	for _, follow := range []bool{true, false} {
		prog := start(t, "forker")
		s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
		f, _ := watch(t, s)
		prog.Do("run 5", "ran 20")
		f.mu.Lock()
		children := 0
		for _, creator := range f.creator {
			if creator == prog.PID() {
				children++
			}
		}
		if children < 15 || len(f.creator) != children {
			t.Errorf("follow %v: %d threads made, %d by the program; want 20", follow, len(f.creator), children)
		}
		if follow && f.gone != 20 {
			t.Errorf("%d threads have ended, want 20", f.gone)
		}
		f.mu.Unlock()
		closeSession(t, s)
		wantRight(t, prog)
	}
}

package kprobes_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

// family is what a ThreadWatcher was told.
type family struct {
	mu      sync.Mutex
	alive   map[int]bool
	creator map[int]int
	gone    int
	ended   map[int]int // processes, and how often
}

func watch(t *testing.T, s *kprobes.Session) (f *family, stop func()) {
	f = &family{alive: map[int]bool{}, creator: map[int]int{}, ended: map[int]int{}}
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
		Ended: func(pid int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ended[pid]++
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
		ok(t, s.Signal(0)) // a round of the tracer: what it has waited for is told
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
		for pid, n := range f.ended {
			if n != 1 || f.creator[pid] == 0 {
				t.Errorf("follow %v: process %d has ended %d times", follow, pid, n)
			}
		}
		if len(f.ended) != len(f.creator) {
			t.Errorf("follow %v: %d processes have ended, want %d", follow, len(f.ended), len(f.creator))
		}
		f.mu.Unlock()
		closeSession(t, s)
		wantRight(t, prog)
	}
}

// The thread that executes a program gets the first one's ID; all others are told as gone, once.
func TestThreadsThatAnExecveEndsAreTold(t *testing.T) {
	for _, follow := range []bool{true, false} {
		prog := start(t, "execer")
		s := attach(t, prog.PID(), kprobes.Options{Follow: follow})
		f, stop := watch(t, s)
		const rounds, each = 3, 4 // threads made in a round, by the first one
		for i := range rounds {
			prog.Do("execthread", fmt.Sprintf("ready %d", i+1))
			ok(t, s.Signal(0)) // a round of the tracer
			f.mu.Lock()
			heir := f.creator[prog.PID()]
			if heir == 0 || heir == prog.PID() || !maps.Equal(f.alive, map[int]bool{prog.PID(): true}) {
				t.Errorf("follow %v: the program was executed by thread %d, and %v are alive", follow, heir, f.alive)
			}
			if want := (i + 1) * (each + 1); f.gone != want || len(f.ended) != 0 {
				t.Errorf("follow %v: %d threads have gone, want %d; %v have ended", follow, f.gone, want, f.ended)
			}
			f.mu.Unlock()
		}
		stop()
		closeSession(t, s)
		wantRight(t, prog)
	}
}

// Whom SIGKILL ends has no time to stop.
func TestThreadsThatAreKilledAreTold(t *testing.T) {
	prog := start(t, "execer")
	s := attach(t, prog.PID(), kprobes.Options{})
	f, _ := watch(t, s)
	kp := boosted.probe("foo")
	hit := make(chan int, 1)
	kp.PreHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		select {
		case hit <- regs.TID():
		default:
		}
		return 0
	}
	register(t, s, kp)
	prog.Send("execthread")
	<-hit
	if err := unix.Kill(prog.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.alive, prog.PID()) // if it has executed its program in time
	if len(f.alive) != 0 || f.gone < len(f.creator) || f.ended[prog.PID()] != 1 {
		t.Errorf("%v are alive, %d of %v have gone, %v have ended", f.alive, f.gone, f.creator, f.ended)
	}
}

package debugfs_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// However many threads call at once, times is kept, and of n calls of an interval i there are n/i that fail.
func TestThreadsFailAsOftenAsTheyAreTo(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		failed := func(threads, n int) int {
			var sum int
			if _, err := fmt.Sscanf(tr.prog.Do(fmt.Sprintf("threads %d %d foo", threads, n), "sum"), "sum %d", &sum); err != nil {
				t.Fatal(err)
			}
			return threads*n*n - sum
		}
		// All threads call foo(0) once: results are 1, or -4000.
		for _, tt := range []struct {
			attributes string
			failed     int
		}{
			{"times=17", 17}, {"times=-1 interval=10", 30}, {"space=101", 20}, {"interval=1 space=0 when=100..199+3", 34},
			{"inject=target when= interval=10", 30}, // another one: the counters are the tracer's
		} {
			tr.attributes("when= probability=0")
			tr.must(tr.set(failing+"inject", "")) // counters of the target begin anew
			tr.must(tr.set(failing+"inject", "foo"))
			tr.must(tr.set(failing+"foo/retval", fmt.Sprintf("%#x", uint64(1<<64-4000))))
			tr.attributes("probability=100 " + tt.attributes)
			if got := failed(300, 1); got != tt.failed*4001 {
				t.Errorf("%s: %d failures, want %d", tt.attributes, got/4001, tt.failed)
			}
		}
	})
}

// Whatever is written while calls are decided, they return what they should, and at the end nothing is left.
func TestFailFunctionUnderLoad(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		done := make(chan struct{})
		var writers sync.WaitGroup
		for w, all := range [][]string{
			{"inject foo", "probability 50", "times -1", "interval 3", "inject !foo", "inject target", "interval 1", "inject !target"},
			{"when 2+2", "seed 1", "task-filter Y", "task-filter N", "when ", "space 20", "times 100", "probability 1", "per-thread Y", "per-thread N"},
			{fmt.Sprintf("tasks/%d/fail-nth 3", tr.prog.PID()), fmt.Sprintf("tasks/%d/make-it-fail 1", tr.prog.PID()), "verbose 0", "require-start 1", "require-start 0", "inject target2", "inject "},
		} {
			writers.Add(1)
			go func() {
				defer writers.Done()
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					name, text, _ := strings.Cut(all[i%len(all)], " ")
					if err := tr.set(failing+name, text); err != nil && name != "inject" { // others may have been there first
						t.Errorf("writer %d: %s: %v", w, all[i%len(all)], err)
					}
					_ = tr.cat(failing + "inject")
				}
			}()
		}
		for range 100 {
			var sum, count int
			answer := tr.prog.Do("threads 8 500 foo", "sum")
			if _, err := fmt.Sscanf(answer, "sum %d count %d", &sum, &count); err != nil || count != 4000 {
				t.Fatal(answer)
			}
			if sum > 8*500*500 || sum < -22*4000 {
				t.Errorf("sum %d", sum)
			}
		}
		close(done)
		writers.Wait()
		tr.must(tr.set(failing+"inject", ""))
		tr.is(failing+"inject", "")
		if n := len(tr.session.Probes()); n != 0 {
			t.Errorf("%d probes are left", n)
		}
		tr.returns("foo", 5, 11)
	})
}

// A followed child inherits make-it-fail, and counts by itself.
func TestFailFunctionInChildren(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "forker"))
	tr := openProg(t, p, kprobes.Options{Follow: true})
	tr.must(tr.set(failing+"inject", "foo"))
	tr.attributes("probability=100 times=-1 task-filter=Y interval=2 verbose=0")
	tr.must(tr.set(fmt.Sprintf("%stasks/%d/make-it-fail", failing, p.PID()), "1"))
	p.Do("run 3", "ran 12") // each child calls foo once: the first of its calls, which does not fail
	if got := p.Quit(); got != "right" {
		t.Errorf("the program says %q", got)
	}

	p = testprog.Start(t, testprog.Build(t, "forker"))
	tr = openProg(t, p, kprobes.Options{Follow: true})
	tr.must(tr.set(failing+"inject", "foo"))
	tr.must(tr.set(failing+"foo/retval", "-255")) // the exit status 1, as foo(0)
	tr.attributes("probability=100 times=1000 task-filter=Y verbose=0")
	p.Do("run 1", "ran 4")
	tr.is(failing+"times", "1000\n")
	tr.must(tr.set(fmt.Sprintf("%stasks/%d/make-it-fail", failing, p.PID()), "1"))
	p.Do("run 1", "ran 4")
	tr.is(failing+"times", "996\n") // also the one that runs another program: a task keeps make-it-fail
}

func TestFilesOfAProcessThatHasEnded(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "prey"))
	tr := openProg(t, p, kprobes.Options{})
	tr.must(tr.set(failing+"inject", "foo"))
	tr.attributes("probability=100 verbose=0")
	p.Kill()
	<-tr.session.Done()
	tr.refused(tr.set(failing+"inject", "target"), errNoProcess)
	tr.is(failing+"inject", "foo\n")
	tr.must(tr.set(failing+"inject", ""))
	if got, err := tr.ReadDir("fail_function/tasks"); err != nil || len(got) != 0 {
		t.Errorf("tasks %v, %v", got, err)
	}
}

package ptrace

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestFewThreadsAreAwayAtOnceDuringAnAttach: of hundreds, no more have stopped, or were asked to, than are dealt with in a moment. All are stopped once.
func TestFewThreadsAreAwayAtOnceDuringAnAttach(t *testing.T) {
	const threads = 300
	prog := testprog.Start(t, testprog.Build(t, "threads"), "299")
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	most := 0
	tr.OnEvent(func() {
		away := 0
		for _, th := range tr.threads {
			if th.state == stopped || th.asked {
				away++
			}
		}
		most = max(most, away)
	})
	var p *Process
	whileHeld(t, tr, func() {}, func() error {
		p, err = tr.Attach(prog.PID())
		return err
	})
	tr.OnEvent(nil)
	whileHeld(t, tr, func() {}, func() error {
		for _, th := range p.Threads() {
			if !th.seen {
				t.Errorf("thread %d has not stopped", th.TID)
			}
		}
		if len(p.threads) != threads || most == 0 || most > passTogether {
			t.Errorf("of %d threads %d were away at once, want 1 to %d of %d", len(p.threads), most, passTogether, threads)
		}
		return tr.Detach(p)
	})
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestWhoRunsIsAwayForTheLeastOfAFreeze: it is asked to stop when those stand that wait in system calls, and is let go before them.
func TestWhoRunsIsAwayForTheLeastOfAFreeze(t *testing.T) {
	k := probe(t, "threads", "3") // three that call, and the main thread, which reads
	k.prog.Send("start")
	freeze := func() { k.do(func() error { return k.p.Space.Freeze(func(*Frozen) error { return nil }) }) }
	testprog.Await(t, "three threads that run", func() bool {
		freeze()
		idle := 0
		k.do(func() error {
			for th := range k.p.Space.all() {
				if th.idle {
					idle++
				}
			}
			return nil
		})
		return idle == 1
	})
	check := func() {
		main := k.p.Leader()
		for th := range k.p.Space.all() {
			if th != main && (th.asked || th.state == stopped) && main.state == running {
				t.Error("a thread that runs is asked to stop, or stands, and one that waits in the kernel is not")
			}
		}
	}
	for range 20 {
		k.do(func() error { k.tr.OnEvent(check); return nil })
		freeze()
		k.do(func() error { k.tr.OnEvent(nil); return nil })
	}
	k.prog.Do("stop", "calls")
	k.end()
}

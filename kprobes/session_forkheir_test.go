package kprobes

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// heirsStay has looks at code make no domains of heirs.
func heirsStay(t *testing.T) {
	before := mostLooks
	mostLooks = 1 << 30
	t.Cleanup(func() { mostLooks = before })
}

// held is how many heirs and how many domains there are.
func (s *Session) held() (heirs, domains int) {
	_ = s.doApart(func() error {
		heirs, domains = len(s.heirs.all), len(s.domains)
		return nil
	})
	return heirs, domains
}

func wantHeld(t *testing.T, s *Session, when string, heirs, domains int) {
	t.Helper()
	if h, d := s.held(); h != heirs || d != domains {
		t.Fatalf("%s: %d heirs and %d domains, want %d and %d", when, h, d, heirs, domains)
	}
}

func wantHits(t *testing.T, kps []*Kprobe, when string, want uint64) {
	t.Helper()
	for _, kp := range kps {
		if n := kp.Hits(); n != want {
			t.Fatalf("%s: %s has %d hits, want %d", when, kp.SymbolName, n, want)
		}
	}
}

// ended has a child end with the test.
func ended(t *testing.T, child int) {
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestAnHeirCountsWithoutADomain: each hit once, while it lives and when it has ended; and nothing of it is left with us.
func TestAnHeirCountsWithoutADomain(t *testing.T) {
	heirsStay(t)
	prog, s, kps := thousandProbes(t, Options{Follow: true})
	prog.Send("mine")
	prog.Expect("mine 1499500")
	before := 0
	for round := range uint64(4) {
		fork(t, prog)
		wantHeld(t, s, "born", 1, 1)
		wantHits(t, kps, "born", 1+3*round)
		prog.Send("call")
		prog.Expect("sum 1499500")
		wantHits(t, kps, "called", 2+3*round)
		prog.Send("mine")
		prog.Expect("mine 1499500")
		prog.Send("call")
		prog.Expect("sum 1499500")
		wantHeld(t, s, "called", 1, 1)
		wantHits(t, kps, "called twice", 4+3*round)
		prog.Send("end")
		prog.Expect("ended")
		testprog.Await(t, "the child's end", func() bool { h, _ := s.held(); return h == 0 })
		wantHeld(t, s, "ended", 0, 1)
		wantHits(t, kps, "ended", 4+3*round)
		if round == 0 {
			before = descriptors(t)
		}
		testprog.Await(t, "as many descriptors as when the first had ended", func() bool { return descriptors(t) <= before })
	}
	wantClosed(t, prog, s)
}

// TestAnHeirGetsADomain: when somebody wants it, as when a probe changes, and before its parent goes. It goes on counting, and each hit is counted once.
func TestAnHeirGetsADomain(t *testing.T) {
	heirsStay(t)
	prog, s, kps, _ := thousand(t, Options{Follow: true})
	call := func() {
		t.Helper()
		prog.Send("call")
		prog.Expect("sum 1499500")
	}
	call()
	wantHeld(t, s, "born", 1, 1)
	if err := s.DisableKprobe(kps[7]); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, s, "one is disabled", 0, 2)
	wantHits(t, kps, "one is disabled", 1)
	call()
	wantHits(t, kps[:7], "called", 2)
	wantHits(t, kps[7:8], "called", 1)
	wantHits(t, kps[8:], "called", 2)
	if err := errors.Join(s.EnableKprobe(kps[7]), s.UnregisterKprobes(kps[500:600]), s.WaitForOptimizer(t.Context())); err != nil {
		t.Fatal(err)
	}
	call()
	wantHits(t, kps[8:500], "called", 3)
	wantHits(t, kps[7:8], "enabled", 2)
	prog.Send("end")
	prog.Expect("ended")
	testprog.Await(t, "the child's end", func() bool { _, n := s.held(); return n == 1 })
	wantHits(t, kps[600:], "ended", 3)

	child := fork(t, prog)
	call()
	wantHeld(t, s, "born to less", 1, 1)
	wantHits(t, kps[600:], "born to less", 4)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testprog.CheckClean(t, child)
	testprog.CheckClean(t, prog.PID())
	call()
	wantHits(t, kps[600:], "closed", 4)
	prog.Send("end")
	prog.Expect("ended")
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// TestAnHeirOutlivesItsParent: what it has counted, and counts then, is counted.
func TestAnHeirOutlivesItsParent(t *testing.T) {
	heirsStay(t)
	prog, s, kps, child := thousand(t, Options{Follow: true})
	ended(t, child)
	prog.Send("call")
	prog.Expect("sum 1499500")
	wantHeld(t, s, "born", 1, 1)
	if err := unix.Kill(prog.PID(), unix.SIGKILL); err != nil {
		t.Error(err)
	}
	testprog.Await(t, "the parent's end", func() bool { h, n := s.held(); return h == 0 && n == 1 })
	wantHits(t, kps, "the parent has ended", 1)
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	testprog.Await(t, "the child's end", func() bool { _, n := s.held(); return n == 0 })
	wantHits(t, kps, "both have ended", 1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeirsAreFew: the oldest get domains.
func TestHeirsAreFew(t *testing.T) {
	heirsStay(t)
	prog, s, kps := thousandProbes(t, Options{Follow: true})
	for range mostHeirs + 2 {
		ended(t, fork(t, prog))
		prog.Send("call")
		prog.Expect("sum 1499500")
	}
	wantHeld(t, s, "many", mostHeirs, 3)
	wantHits(t, kps, "many", mostHeirs+2)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantHits(t, kps, "closed", mostHeirs+2)
}

// TestChildrenOfAnHeirThatIsKilled are followed, also those that have not stopped yet when it ends.
func TestChildrenOfAnHeirThatIsKilled(t *testing.T) {
	rounds := testsize.Rounds(40, 150, 3000)
	prog := testprog.Start(t, testprog.Build(t, "orphans", "-O2"))
	s, err := Attach(t.Context(), prog.PID(), Options{Follow: true, Log: func(line string) { t.Error(line) }})
	if err != nil {
		t.Fatal(err)
	}
	kp := &Kprobe{SymbolName: "probed"}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	var hits uint64
	var untraced int
	if said := prog.Do(fmt.Sprintf("orphan %d", rounds), "orphans"); !scanned(said, "orphans %d %d", &hits, &untraced) || hits == 0 || untraced != 0 || kp.Hits() != hits {
		t.Errorf("it says %q, and %d hits are counted", said, kp.Hits())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	prog.Quit()
}

func scanned(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// TestAChildThatIsKilledInItsExecIsForgotten: nobody learns that it has left what it was born with, but for that.
func TestAChildThatIsKilledInItsExecIsForgotten(t *testing.T) {
	heirsStay(t)
	prog := testprog.Start(t, testprog.Build(t, "spawner"), "/bin/true")
	s, err := Attach(t.Context(), prog.PID(), Options{Follow: true, Log: func(line string) { t.Error(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobe(&Kprobe{SymbolName: "foo"}); err != nil {
		t.Fatal(err)
	}
	s.WaitForOptimizer(t.Context())
	if err := s.doApart(func() error {
		s.tracer.OnEvent(func() {
			children, _ := procfs.Children(prog.PID(), 0)
			for _, pid := range children {
				if comm, err := procfs.Comm(pid, 0); err == nil && comm == "true" { // from a moment before the exec stops
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got := prog.Do("fork 1", "child"); got != "child -1" {
			t.Errorf("the program says %q, want the end by a signal", got)
		}
	}
	testprog.Await(t, "the children's end", func() bool { h, n := s.held(); return h == 0 && n == 1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q", got)
	}
}

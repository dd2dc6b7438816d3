package kprobes

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAFollowedChildIsBornWithItsJumps: they are its parent's, at the same places, with counters of its own, and from then on each goes its own way.
func TestAFollowedChildIsBornWithItsJumps(t *testing.T) {
	prog, s, kps := thousandProbes(t, Options{Follow: true})
	mine := func() {
		t.Helper()
		prog.Send("mine")
		prog.Expect("mine 1499500")
	}
	mine()
	mine()
	child := fork(t, prog)
	hits := func(when string, of []*Kprobe, want uint64) {
		t.Helper()
		for _, kp := range of {
			if n := kp.Hits(); n != want {
				t.Fatalf("%s: %s has %d hits, want %d", when, kp.SymbolName, n, want)
			}
		}
	}
	jumps := func(when string, want int) {
		t.Helper()
		_ = s.do(func() error {
			here, there := s.mainDomain(), s.domainOfProcess(t, child)
			n := 0
			for _, kp := range kps {
				own, parents := there.placed(kp), here.placed(kp)
				if own == nil || parents == nil || own.jump() == nil || parents.jump() == nil {
					continue
				}
				n++
				if own == parents || own.jump() == parents.jump() || own.jump().Addr != parents.jump().Addr || own.jump().count == parents.jump().count || own.domain != there {
					t.Errorf("%s: the jump at %s is not its parent's, or more than that", when, own.addr)
				}
				if fresh := parents.jump().count.fresh(); fresh != 2 {
					t.Errorf("%s: the parent has counted %d hits at %s", when, fresh, own.addr)
				}
			}
			if n != want {
				t.Errorf("%s: %d jumps in both, want %d", when, n, want)
			}
			return nil
		})
	}
	all := 0
	_ = s.do(func() error {
		for _, kp := range kps {
			if s.mainDomain().placed(kp).jump() != nil {
				all++
			}
		}
		return nil
	})
	if all < 900 {
		t.Errorf("only %d jumps", all)
	}
	call := func() {
		t.Helper()
		prog.Send("call")
		prog.Expect("sum 1499500")
	}
	jumps("at birth", all)
	hits("at birth", kps, 2)
	call()
	hits("called once", kps, 3)
	jumps("called once", all)
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	jumps("without optimization", 0)
	call()
	hits("called twice", kps, 4)
	if err := s.SetOptimization(true); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	call()
	mine()
	hits("called three times", kps, 6)
	for _, kp := range kps[:100] {
		if err := s.DisableKprobe(kp); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.UnregisterKprobes(kps[100:900]); err != nil {
		t.Fatal(err)
	}
	call()
	hits("disabled", kps[:100], 6)
	hits("unregistered", kps[100:900], 6)
	hits("left", kps[900:], 7)
	again := make([]*Kprobe, 100)
	for i := range again {
		again[i] = &Kprobe{SymbolName: kps[500+i].SymbolName}
	}
	if err := s.RegisterKprobes(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	call()
	hits("registered anew", again, 1)
	endsRight(t, prog, s)
}

// TestAChildOutlivesItsParentsProbes: the session ends while it lives, and it has its own code again, and no memory of ours.
func TestAChildOutlivesItsParentsProbes(t *testing.T) {
	prog, s, kps, child := thousand(t, Options{Follow: true})
	prog.Send("call")
	prog.Expect("sum 1499500")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testprog.CheckClean(t, child)
	testprog.CheckClean(t, prog.PID())
	for _, kp := range kps {
		if n := kp.Hits(); n != 1 {
			t.Fatalf("%s has %d hits", kp.SymbolName, n)
		}
	}
	prog.Send("call")
	prog.Expect("sum 1499500")
	prog.Send("end")
	prog.Expect("ended")
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// TestWhatDiffersIsNotCopied: a fork copies memory at a moment of its own. One byte of all pages that we have ever written is enough.
func TestWhatDiffersIsNotCopied(t *testing.T) {
	prog, s, kps, child := thousand(t, Options{Follow: true})
	err := s.do(func() error {
		here, there := s.mainDomain(), s.domainOfProcess(t, child)
		p := there.space.Processes()[0]
		if !there.bornAlike(here, p) {
			return errors.New("the child's code differs from its parent's at its birth")
		}
		for _, kp := range []*Kprobe{kps[0], kps[499], kps[999]} {
			page := here.placed(kp).addr &^ (codePage - 1)
			for _, at := range []arch.Addr{page, page + codePage - 1} {
				b := make([]byte, 1)
				if err := there.space.Text().ReadMemory(at, b); err != nil {
					return err
				}
				b[0]++
				if err := there.space.Text().WriteMemory(at, b); err != nil {
					return err
				}
				alike := there.bornAlike(here, p)
				b[0]--
				if err := there.space.Text().WriteMemory(at, b); err != nil || alike {
					t.Errorf("a byte at %s differs, and was not seen: %v", at, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	endsRight(t, prog, s)
}

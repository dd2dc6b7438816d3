package kprobes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// besideCase is one uprobe at one function, at one time.
type besideCase struct {
	function string
	offset   uint64 // of the uprobe, an instruction's
	opts     kprobes.Options
	when     string // it stands: "before" the probe is armed, "after" it has gone, in "between"
}

// No uretprobes: alone they kill a program that leaves functions by siglongjmp from an alternate stack, as this one does.
func besideCases() (all []besideCase) {
	offsets := map[string][]uint64{"s_ret": {0, 4}, "s_push": {0, 1, 4}, "s_one": {0, 1, 2}, "s_call": {0, 1}, "s_loop": {0}}
	for function, at := range offsets {
		for _, offset := range at {
			for _, when := range []string{"between", "before", "after", "throughout"} {
				all = append(all,
					besideCase{function, offset, kprobes.Options{}, when},
					besideCase{function, offset, kprobes.Options{NoOptimize: true}, when})
			}
		}
	}
	return all
}

// TestUprobesAtProbedCode: a uprobe at the same site, or inside its jump, comes before, stands while or goes after it. The program is right,
// its text is the file's in the end, but for the breakpoint of a uprobe that stands, and a probe that was lost is hit again.
func TestUprobesAtProbedCode(t *testing.T) {
	testprog.NeedUprobes(t)
	bin := ownCopy(t, "optstorm")
	for _, c := range besideCases() {
		t.Run(fmt.Sprintf("%s+%d %s jumps %v", c.function, c.offset, c.when, !c.opts.NoOptimize), func(t *testing.T) {
			besideUprobe(t, testprog.Start(t, bin), c)
		})
	}
}

func besideUprobe(t *testing.T, prog *testprog.Prog, c besideCase) {
	t.Helper()
	at := addressOf(t, prog.PID(), c.function)
	place, err := testprog.PlaceOf(prog.PID(), at)
	if err != nil {
		t.Fatal(err)
	}
	var u *testprog.Uprobe
	come := func() {
		if u, err = testprog.OpenUprobe(prog.PID(), place.File, place.Offset+c.offset, false); err != nil {
			t.Fatal(err)
		}
	}
	if c.when == "before" || c.when == "throughout" {
		come()
	}
	s, kp := sessionWith(t, prog, c.function, c.opts)
	prog.Do("storm 2", "did")
	if c.when == "between" || c.when == "after" {
		come()
	}
	prog.Do("storm 2", "did")
	if c.when == "between" || c.when == "before" {
		u.Close()
		prog.Do("storm 2", "did")
		wantHitsAgain(t, prog, kp, "storm 1", "did")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.Do("storm 2", "did")
	if c.when == "after" || c.when == "throughout" {
		u.Close()
		prog.Do("storm 2", "did")
	}
	prog.CheckClean()
	if last := prog.Quit(); last != "right" {
		t.Errorf("the program says %q", last)
	}
}

// addressOf is where a process has a function.
func addressOf(t *testing.T, pid int, name string) arch.Addr {
	t.Helper()
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Symbols().Resolve(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return found[0].Addr
}

// placesAround are where instructions of functions begin: at their beginnings and behind what a jump covers or, with inside, all.
func placesAround(t *testing.T, pid int, functions []string, inside bool) (places []testprog.Place) {
	t.Helper()
	outside := map[string][]uint64{"s_ret": {0}, "s_push": {0, 8}, "s_one": {0}, "s_call": {0, 6}, "s_loop": {5, 8}, "s_jump": {0, 7}}
	within := map[string][]uint64{"s_ret": {4}, "s_push": {1, 4}, "s_one": {1, 2}, "s_call": {1}, "s_loop": {0}}
	for _, f := range functions {
		p, err := testprog.PlaceOf(pid, addressOf(t, pid, f))
		if err != nil {
			t.Fatal(err)
		}
		at := outside[f]
		if inside {
			at = slices.Concat(at, within[f])
		}
		for _, n := range at {
			places = append(places, testprog.Place{File: p.File, Offset: p.Offset + n})
		}
	}
	return places
}

// TestLaunchWhereAUprobeStandsAtTheEntryPoint: the kernel has its hits, and nobody else sees the program come there.
func TestLaunchWhereAUprobeStandsAtTheEntryPoint(t *testing.T) {
	testprog.NeedUprobes(t)
	bin := testprog.Build(t, "unused")
	prog := testprog.Start(t, bin)
	place, err := testprog.PlaceOf(prog.PID(), addressOf(t, prog.PID(), "_start"))
	prog.Quit()
	if err != nil {
		t.Fatal(err)
	}
	for _, stands := range []bool{false, true} {
		if stands {
			u, err := testprog.OpenUprobe(-1, place.File, place.Offset, false)
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
		}
		if stands && !testprog.DebugRegistersTrap() {
			// Only they can stand where a uprobe does: the program runs on, and that is told.
			_, err := launch(t, bin)
			if !errors.Is(err, ptrace.ErrExited) {
				t.Errorf("the launch ends with %v", err)
			}
			continue
		}
		launched(t, bin)
	}
}

// launch launches a program that ends when it reads.
func launch(t *testing.T, bin string) (*kprobes.Session, error) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	defer in.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	return kprobes.Launch(context.Background(), kprobes.Command{Path: bin, Args: []string{bin}, Files: []*os.File{in, null, null}}, kprobes.Options{})
}

// launched launches a program with a probe of main, and looks whether that is hit.
func launched(t *testing.T, bin string) {
	t.Helper()
	s, err := launch(t, bin)
	if err != nil {
		t.Fatal(err)
	}
	kp := &kprobes.Kprobe{SymbolName: "main"}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(testprog.Patience):
		t.Error("the program does not end")
	}
	if kp.Hits() != 1 {
		t.Errorf("main was hit %d times", kp.Hits())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

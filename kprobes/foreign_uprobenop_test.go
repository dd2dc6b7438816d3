package kprobes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestUprobesAtANopOfFiveBytes: the kernel makes a uprobe there a call when it was hit. It comes before our probe, or after it, and goes before or after us.
func TestUprobesAtANopOfFiveBytes(t *testing.T) {
	testprog.NeedUprobes(t)
	bin := ownCopy(t, "selfpatch")
	for _, jumps := range []bool{true, false} {
		for _, first := range []bool{true, false} {
			for _, last := range []bool{true, false} {
				t.Run(fmt.Sprintf("jumps %v, the uprobe comes first %v, goes last %v", jumps, first, last), func(t *testing.T) {
					besideNop(t, testprog.Start(t, bin), kprobes.Options{NoOptimize: !jumps}, first, last)
				})
			}
		}
	}
}

func besideNop(t *testing.T, prog *testprog.Prog, opts kprobes.Options, first, last bool) {
	t.Helper()
	place, err := testprog.PlaceOf(prog.PID(), addressOf(t, prog.PID(), "p_nop5"))
	if err != nil {
		t.Fatal(err)
	}
	call := func() {
		for range 20 {
			prog.Do("call p_nop5 5", "ret 6")
		}
	}
	var u *testprog.Uprobe
	come := func() {
		if u, err = testprog.OpenUprobe(prog.PID(), place.File, place.Offset, false); err != nil {
			t.Fatal(err)
		}
		call()
	}
	if first {
		come()
	}
	s, err := kprobes.Attach(context.Background(), prog.PID(), opts)
	if err != nil {
		t.Fatal(err)
	}
	kp := &kprobes.Kprobe{SymbolName: "p_nop5"}
	refused := s.RegisterKprobe(kp)
	if refused != nil && (!first || !strings.Contains(refused.Error(), "uprobe")) {
		t.Fatal(refused)
	}
	if s.WaitForOptimizer(t.Context()); !first {
		call()
		come()
	}
	call()
	if !last {
		u.Close()
		testprog.Await(t, "a hit of the probe again", func() bool {
			before := kp.Hits()
			call()
			return refused != nil || kp.Hits() > before
		})
	}
	closeSession(t, s)
	call()
	if last {
		u.Close()
	}
	call()
	prog.CheckClean()
	wantRight(t, prog)
}

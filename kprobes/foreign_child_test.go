package kprobes_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestUprobesBesideAFollowedChild: a uprobe of one process, or of all, comes before the probes, among them, or when the child is born with them. Both processes
// work right with it and without it, the hits of other probes are exact, and nothing is left.
func TestUprobesBesideAFollowedChild(t *testing.T) {
	testprog.NeedUprobes(t)
	for _, when := range []string{"before", "armed", "born"} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in all processes %v", when, all), func(t *testing.T) { besideChild(t, when, all) })
		}
	}
}

func besideChild(t *testing.T, when string, all bool) {
	prog := testprog.Start(t, ownCopy(t, "thousand"))
	place, err := testprog.PlaceOf(prog.PID(), addressOf(t, prog.PID(), "fn_500"))
	if err != nil {
		t.Fatal(err)
	}
	var u *testprog.Uprobe
	come := func(now string) {
		pid := prog.PID()
		if all {
			pid = -1
		}
		if now != when {
			return
		}
		if u, err = testprog.OpenUprobe(pid, place.File, place.Offset, false); err != nil {
			t.Fatal(err)
		}
	}
	come("before")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true, Log: func(text string) { t.Log(text) }})
	var kps []*kprobes.Kprobe
	for i := 0; i < 1000; i += 20 {
		if i != 500 || when != "before" { // there it is refused
			kps = append(kps, counting(fmt.Sprintf("fn_%03d", i)))
		}
	}
	if err := errors.Join(s.RegisterKprobes(t.Context(), kps), s.WaitForOptimizer(t.Context())); err != nil {
		t.Fatal(err)
	}
	come("armed")
	prog.Do("fork", "child")
	come("born")
	both := func() {
		prog.Do("call", "sum 1499500")
		prog.Do("mine", "mine 1499500")
	}
	both()
	u.Close()
	both()
	for _, kp := range kps {
		if kp.SymbolName != "fn_500" {
			wantHits(t, kp, 4)
		}
	}
	prog.Do("end", "ended")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

package kprobes

import (
	"context"
	"strconv"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestNoReturnIsMissedInACrowd: more threads than the kernel's trace events follow calls are in a function at once, that takes no time. They all come to its
// entry before the first is behind its return. Jumps follow.
func TestNoReturnIsMissedInACrowd(t *testing.T) {
	const n, calls = 4500, 2
	prog := testprog.Start(t, testprog.Build(t, "threads"), strconv.Itoa(n))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	handled := 0
	rp := &Kretprobe{KP: Kprobe{SymbolName: "foo"}, MaxActive: arch.MaxCalls, Handler: func(*KretprobeInstance, *Regs) int { handled++; return 0 }}
	counts := &Kretprobe{KP: Kprobe{SymbolName: "foo"}, MaxActive: arch.MaxCalls}
	went := func(all ...*Kretprobe) {
		t.Helper()
		if got := prog.Do("go "+strconv.Itoa(calls), "went"); got != "went "+strconv.Itoa(n*calls) {
			t.Error(got)
		}
		for _, rp := range all {
			if rp.KP.Hits() != n*calls || rp.Hits() != n*calls || rp.NMissed()+rp.KP.NMissed() != 0 {
				t.Errorf("%d entries, %d returns, %d and %d missed of %d calls", rp.KP.Hits(), rp.Hits(), rp.NMissed(), rp.KP.NMissed(), n*calls)
			}
		}
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	went(rp)
	_ = s.do(func() error {
		if handled != n*calls {
			t.Errorf("%d returns were handled, want %d", handled, n*calls)
		}
		return nil
	})
	if err := s.UnregisterKretprobe(rp); err != nil {
		t.Error(err)
	}
	if err := s.RegisterKretprobe(counts); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitForOptimizer(t.Context()); err != nil {
		t.Error(err)
	}
	went(counts)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	prog.CheckClean()
	if tids, err := procfs.Tasks(prog.PID()); err != nil || len(tids) != n+1 {
		t.Errorf("%d threads live, want %d (%v)", len(tids), n+1, err)
	}
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

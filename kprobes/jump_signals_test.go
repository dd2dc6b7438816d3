package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestSignalsDoNotEndAJump: a timer's signals, as profilers have them, meet a thread in a detour and are delivered between the instructions that it stands for, where the
// handler returns to. That is no reason to give up a jump by which all other hits come.
func TestSignalsDoNotEndAJump(t *testing.T) {
	for name, handler := range map[string]kprobes.PreHandler{
		"counted": nil,
		"handled": func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			prog := start(t, "profiled")
			s := attach(t, prog.PID(), kprobes.Options{})
			kp := &kprobes.Kprobe{SymbolName: "busy", PreHandler: handler}
			register(t, s, kp)
			s.WaitForOptimizer(t.Context())
			if !jumps(s, kp) && keepsJump(s, kp) {
				t.Fatalf("%+v", s.Status(kp))
			}
			var calls, inside uint64
			line := prog.Do(fmt.Sprintf("run %d", testsize.Rounds(50, 200, 2000)), "ran")
			if _, err := fmt.Sscanf(line, "ran %d %d", &calls, &inside); err != nil {
				t.Fatal(line)
			}
			s.WaitForOptimizer(t.Context())
			if st := s.Status(kp); st.Mechanism != kprobes.Optimized && keepsJump(s, kp) {
				t.Errorf("after %d signals and %d calls: %s (%s)", inside, calls, st.Mechanism, st.Reason)
			}
			wantHits(t, kp, calls)
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

package kprobes_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// instructions lists the addresses of a function's instructions.
func instructions(t testing.TB, s *kprobes.Session, prog *testprog.Prog, function string) []arch.Addr {
	t.Helper()
	found, err := s.Symbols().Resolve(t.Context(), function)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", function, found, err)
	}
	bounds, ok := s.Symbols().Function(found[0].Addr)
	if !ok {
		t.Fatalf("%s has no bounds", function)
	}
	code := make([]byte, bounds.Len())
	if err := (ptrace.PeekMemory{PID: prog.PID()}).ReadMemory(bounds.Start, code); err != nil {
		t.Fatal(err)
	}
	var all []arch.Addr
	for at := bounds.Start; at < bounds.End; {
		insn, err := host.Arch.Decode(code[at-bounds.Start:], at)
		if err != nil {
			t.Fatalf("%s at %s: %v", function, at, err)
		}
		all = append(all, at)
		at = insn.End()
	}
	return all
}

func (m mode) probeAt(at arch.Addr) *kprobes.Kprobe {
	kp := m.probe("")
	kp.Addr = at
	return kp
}

// compareSteps reports the first line that differs.
func compareSteps(t testing.TB, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("it ends before line %d, %q", i, want[i])
		case i >= len(want):
			t.Errorf("it goes on with %q", got[i])
		case got[i] != want[i]:
			t.Errorf("line %d: %s\nafter %q", i, difference(got[i], want[i]), want[max(i-3, 0):i])
		default:
			continue
		}
		return
	}
}

// TestProgramThatStepsItself: a program sets the trap flag and has all its instructions
// reported to it, as a debugger inside the process does. It sees the same addresses, flags
// and siginfo whichever of the instructions is probed, and when all are.
func TestProgramThatStepsItself(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "traceflag")
			want := record(prog)
			s := attach(t, prog.PID(), kprobes.Options{})
			if compareSteps(t, record(prog), want); t.Failed() {
				return
			}
			var kps []*kprobes.Kprobe
			for _, at := range instructions(t, s, prog, "tf_block") {
				kp := m.probeAt(at)
				if err := s.RegisterKprobe(kp); err != nil {
					t.Errorf("register: %v", err)
					continue
				}
				kps = append(kps, kp)
				t.Run(fmt.Sprintf("at %#x", uint64(at-kps[0].Addr)), func(t *testing.T) {
					compareSteps(t, record(prog), want)
				})
				if err := s.UnregisterKprobe(kp); err != nil {
					t.Error(err)
				}
				kp.Flags = 0
			}
			register(t, s, kps...)
			for range 3 {
				compareSteps(t, record(prog), want)
			}
			idle := 0
			for _, kp := range kps {
				if kp.Hits() == 0 {
					idle++ // jumped over
				}
			}
			left := int(number(t, prog.Do("leaves", "leaves"), "leaves"))
			prog.Expect("did")
			if idle > 10+left {
				t.Errorf("%d of %d probes were not hit", idle, len(kps))
			}
			prog.Do("threads 4 5", "did")
			prog.Do("plain 4 5", "did")
			closeSession(t, s)
			compareSteps(t, record(prog), want)
			wantRight(t, prog)
		})
	}
}

// TestHitInTheHandlerOfAStep: the handler of the program's own traps hits a probe that the
// stepped code hits too.
func TestHitInTheHandlerOfAStep(t *testing.T) {
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "traceflag", "leaf")
			want := record(prog)
			s := attach(t, prog.PID(), kprobes.Options{})
			at := slices.MaxFunc(instructions(t, s, prog, "tf_block"), func(a, b arch.Addr) int { return int(int64(a - b)) })
			register(t, s, m.probe("tf_leaf"), m.probe("tf_block"), m.probeAt(at))
			for range 10 {
				compareSteps(t, record(prog), want)
			}
			closeSession(t, s)
			wantRight(t, prog)
		})
	}
}

// TestIgnoredStepKills: a trap of the program's own is fatal if SIGTRAP is ignored, also when
// the instruction that it follows is probed.
func TestIgnoredStepKills(t *testing.T) {
	for _, m := range append(slices.Clone(modes), "unprobed") {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, "traceflag", "ignored")
			if m != "unprobed" {
				s := attach(t, prog.PID(), kprobes.Options{})
				for _, at := range instructions(t, s, prog, "tf_block")[:20] {
					register(t, s, m.probeAt(at))
				}
			}
			prog.Send("run")
			if e := prog.Wait(); e.Signal != syscall.SIGTRAP {
				t.Errorf("the program ended with %+v, want SIGTRAP", e)
			}
		})
	}
}

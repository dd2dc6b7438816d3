package kprobes_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestDisarmAllSilencesEveryProbe, and changes no flag (A33, A52, C32).
func TestDisarmAllSilencesEveryProbe(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
	one, two := boosted.probe("third"), stepped.probe("counted")
	late := boosted.probe("go_next")
	off := boosted.probe("nested")
	off.Flags = kprobes.FlagDisabled
	register(t, s, one, two, off)
	var ends int
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "go_call"}}
	rp.EntryHandler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int {
		if err := s.DisarmAll(); err != nil {
			t.Error(err)
		}
		return 0
	}
	rp.Handler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int { ends++; return 0 }
	registerReturns(t, s, rp)
	calls := func(third, counted, next, nested uint64) {
		t.Helper()
		for _, c := range []string{"third 30", "counted 1", "go_next 1", "nested 1"} {
			prog.Do("call "+c, "ret")
		}
		for kp, want := range map[*kprobes.Kprobe]uint64{one: third, two: counted, late: next, off: nested} {
			wantHits(t, kp, want)
		}
	}
	calls(2, 1, 0, 0)                 // nested calls third
	prog.Do("call go_call 30", "ret") // calls third, when all are disarmed
	if ends != 1 || !s.Disarmed() {
		t.Errorf("%d calls in flight returned, want 1", ends)
	}
	register(t, s, late)
	if err := s.EnableKprobe(off); err != nil {
		t.Error(err)
	}
	calls(2, 1, 0, 0)
	for _, kp := range []*kprobes.Kprobe{one, two, late, off} {
		if kp.Flags != 0 {
			t.Errorf("%s: flags %d", kp.SymbolName, kp.Flags)
		}
	}
	if err := s.DisarmAll(); err != nil {
		t.Error(err)
	}
	if err := s.ArmAll(); err != nil {
		t.Error(err)
	}
	calls(4, 2, 1, 2)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSwitchesDuringLoads: a library that is being unloaded takes its probes with it, and that is
// no failure of what is done to them.
func TestSwitchesDuringLoads(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	one, two := boosted.probe("libplug.so:plugged"), boosted.probe("libplug.so:wreck")
	register(t, s, one, two)
	prog.Send("cycle 500 " + glibc.lib(t, "libplug.so"))
	for range 1000 {
		err := errors.Join(s.DisarmAll(), s.DisableKprobe(one), s.ArmAll())
		if enabled := s.EnableKprobe(one); !errors.Is(enabled, kprobes.ErrGone) {
			err = errors.Join(err, enabled)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	prog.Expect("did")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestThousandsEnabledAtOnce: all or, if one can't be, none.
func TestThousandsEnabledAtOnce(t *testing.T) {
	prog, s, first := startMany(t)
	before := code(t, prog.PID(), first)
	kps := thousands(first, 7)
	for _, kp := range kps {
		kp.Flags = kprobes.FlagDisabled
	}
	register(t, s, kps...)
	stranger := &kprobes.Kprobe{SymbolName: "f_0"}
	if err := s.EnableKprobes(t.Context(), append(slices.Clone(kps), stranger)); !errors.Is(err, kprobes.ErrNotRegistered) {
		t.Errorf("with one that is not registered: %v", err)
	}
	if !bytes.Equal(code(t, prog.PID(), first), before) || kps[0].Flags != kprobes.FlagDisabled {
		t.Error("some were enabled nevertheless")
	}
	prog.Do("call 1", "called")
	wantAllHits(t, kps, 0, 0)
	if err := s.EnableKprobes(t.Context(), kps); err != nil {
		t.Fatal(err)
	}
	prog.Do("call 2", "called")
	wantAllHits(t, kps, 2, 2)
	if err := s.EnableKprobes(t.Context(), nil); err != nil {
		t.Error(err)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

package kprobes_test

import (
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestProbesKeepAllRegisters is test_uprobe_regs_equal and test_uretprobe_regs_change of the
// kernel's tools/testing/selftests/bpf: what a program sees of its registers, XSAVE area
// included, is the same across probes of every instruction, and of entry and return; and what
// a handler changes at the return is changed.
func TestProbesKeepAllRegisters(t *testing.T) {
	const runs = 200
	for _, c := range []struct {
		name string
		opts kprobes.Options
		mode mode
	}{
		{"boosted", kprobes.Options{}, boosted},
		{"not boosted", kprobes.Options{NoBoost: true}, boosted},
		{"stepped", kprobes.Options{}, stepped},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := start(t, "keepregs")
			s := attach(t, prog.PID(), c.opts)
			subject, err := s.Symbols().Resolve(t.Context(), "subject+*")
			ok(t, err)
			var kps []*kprobes.Kprobe
			for _, off := range []uint64{0, 3, 4, 7} { // lea, nop, xchg, ret
				kp := c.mode.probe("subject")
				kp.Offset = off
				kps = append(kps, kp)
			}
			if n := subject[0].Every.Len(); n != 8 {
				t.Fatalf("subject has %d bytes", n)
			}
			command := fmt.Sprintf("run %d", runs)
			register(t, s, kps...)
			prog.Do(command, "ran")
			rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "subject"}}
			back := c.mode.probe("")
			rp.Handler = func(ri *kprobes.KretprobeInstance, _ *kprobes.Regs) int { back.Addr = ri.RetAddr; return 0 }
			registerReturns(t, s, rp)
			prog.Do(command, "ran")
			wantReturns(t, rp, runs, runs, 0)
			for _, kp := range kps {
				wantHits(t, kp, 2*runs)
			}
			ok(t, s.UnregisterKprobes(kps))
			register(t, s, back)
			prog.Do(command, "ran")
			wantHits(t, back, runs)
			wantReturns(t, rp, 2*runs, 2*runs, 0)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestHandlersChangeRegistersAtTheReturn, those that the C calling convention leaves to the
// callee and no others.
func TestHandlersChangeRegistersAtTheReturn(t *testing.T) {
	prog := start(t, "keepregs")
	s := attach(t, prog.PID(), kprobes.Options{})
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "subject"}}
	rp.Handler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		for i, name := range []string{"rax", "rcx", "r11"} {
			if !r.Set(name, uint64(0xabcdef00+i)) {
				t.Errorf("%s can't be set", name)
			}
		}
		return 0
	}
	registerReturns(t, s, rp)
	prog.Send(fmt.Sprintf("expect %d %d %d", 0xabcdef00, 0xabcdef01, 0xabcdef02))
	prog.Do("run 50", "ran")
	ok(t, s.UnregisterKretprobe(rp))
	prog.Send("expect")
	prog.Do("run 1", "ran")
	wantReturns(t, rp, 50, 50, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestKretprobesComeAndGo: registered and unregistered while four threads make calls all the
// time. Every result is right, which the program checks; every entry is a return, missed, or
// was in flight at the end.
func TestKretprobesComeAndGo(t *testing.T) {
	const cycles = 200
	prog := testprog.Start(t, testprog.Build(t, "threads"), "4")
	s := attach(t, prog.PID(), kprobes.Options{})
	prog.Send("start")
	entered, returned := 0, 0
	rp := &kprobes.Kretprobe{MaxActive: 3}
	rp.EntryHandler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int {
		entered++
		return 0
	}
	rp.Handler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		if returned++; r.ReturnValue()%3 != 1 {
			t.Errorf("foo returns %d", r.ReturnValue())
		}
		return 0
	}
	total := uint64(0)
	for i := 0; i < cycles || total == 0 && i < 1000*cycles; i++ { // on a busy machine few threads run in a cycle
		rp.KP = kprobes.Kprobe{SymbolName: "foo"}
		entered, returned = 0, 0
		registerReturns(t, s, rp)
		for rp.KP.Hits() < 4 {
			s.Status(&rp.KP) // lets the tracer run
		}
		ok(t, s.UnregisterKretprobe(rp))
		entries, returns, missed := rp.KP.Hits(), rp.Hits(), rp.NMissed()
		if active := entries - returns - missed; active > 3 || uint64(entered) != returns+active || uint64(returned) != returns {
			t.Errorf("cycle %d: %d entries, %d returns, %d missed; %d and %d handlers ran", i, entries, returns, missed, entered, returned)
		}
		total += returns
	}
	if total == 0 {
		t.Error("no call was followed")
	}
	prog.Do("stop", "calls")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

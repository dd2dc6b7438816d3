package kprobes_test

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestReturnNow is what fail_function does (H17): the function returns the value, and its body does not run.
func TestReturnNow(t *testing.T) {
	for _, answer := range []int{1, 0} { // what the handler returns does not matter
		prog := start(t, "call")
		s := attach(t, prog.PID(), kprobes.Options{})
		kp := &kprobes.Kprobe{SymbolName: "probed", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
			ok(t, r.ReturnNow(1))
			ok(t, r.ReturnNow(4711)) // the last one counts
			if trace := r.Backtrace(3); len(trace) == 0 || trace[0].Addr != r.IP() {
				t.Errorf("the backtrace is %v, want one from the caller on", trace)
			}
			return answer
		}}
		register(t, s, kp)
		for range 50 {
			wantSays(t, prog, "go 30", "ret 4711")
		}
		wantHits(t, kp, 50)
		closeSession(t, s)
		wantSays(t, prog, "go 30", "ret 10")
		prog.CheckClean()
		wantRight(t, prog)
	}
}

// TestReturnNowIsRefused where something of the function has run, and where nothing is to be returned from.
func TestReturnNowIsRefused(t *testing.T) {
	prog := start(t, "call")
	s := attach(t, prog.PID(), kprobes.Options{})
	var inside, post, back, body error
	insn := &kprobes.Kprobe{SymbolName: "fault_insn", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		inside = r.ReturnNow(1)
		return 0
	}}
	after := &kprobes.Kprobe{SymbolName: "probed", PostHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) { post = r.ReturnNow(1) }}
	rp := &kprobes.Kretprobe{Handler: func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int { back = r.ReturnNow(1); return 0 }}
	rp.KP.SymbolName = "probed"
	jp := &kprobes.Jprobe{Entry: func(r *kprobes.Regs, _ int64) { body = r.ReturnNow(1) }}
	jp.KP.SymbolName = "probed"
	register(t, s, insn, after)
	ok(t, s.RegisterKretprobe(rp))
	ok(t, s.RegisterJprobe(jp))
	wantSays(t, prog, "go 30", "ret 10")
	prog.Do("fault 8", "fault")
	prog.Expect("ret 11")
	closeSession(t, s)
	if !errors.Is(inside, kprobes.ErrNotEntry) {
		t.Errorf("inside of a function: %v, want %v", inside, kprobes.ErrNotEntry)
	}
	for name, err := range map[string]error{"a PostHandler": post, "a Kretprobe's Handler": back, "a Jprobe": body} {
		if !errors.Is(err, kprobes.ErrNotInHandler) {
			t.Errorf("in %s: %v, want %v", name, err, kprobes.ErrNotInHandler)
		}
	}
	prog.CheckClean()
	wantRight(t, prog)
}

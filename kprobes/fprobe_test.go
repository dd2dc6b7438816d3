package kprobes_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
)

// glob makes one of each for each function that pattern matches: what an fprobe is.
func glob(t *testing.T, s *kprobes.Session, pattern string, each func() *kprobes.Kretprobe) []*kprobes.Kretprobe {
	t.Helper()
	found, err := s.Symbols().Resolve(t.Context(), pattern)
	ok(t, err)
	var rps []*kprobes.Kretprobe
	for _, l := range found {
		rp := each()
		rp.KP.Addr = l.Addr
		rps = append(rps, rp)
	}
	return rps
}

// callbacks are those of an fprobe, which write down what they see. The 4 bytes that entry and
// exit share hold the argument.
type callbacks struct {
	skip int  // what those at the entry return
	exit bool // there are some at the exit
	log  []string
}

func (c *callbacks) probe() *kprobes.Kretprobe {
	rp := &kprobes.Kretprobe{DataSize: 4}
	rp.EntryHandler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		arg, _ := r.Arg(0)
		binary.LittleEndian.PutUint32(ri.Data, uint32(arg))
		c.log = append(c.log, fmt.Sprint("entry ", arg))
		return c.skip
	}
	if c.exit {
		rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			c.log = append(c.log, fmt.Sprint("exit ", r.ReturnValue(), " of ", binary.LittleEndian.Uint32(ri.Data), ", ", len(ri.Data), " bytes"))
			return 0
		}
	}
	return rp
}

// TestFprobes is what the kernel's lib/tests/test_fprobe.c checks of its probes of many functions,
// done with a batch of Kretprobes (C39 to C44).
func TestFprobes(t *testing.T) {
	const both = "[entry 30 exit 10 of 30, 4 bytes entry 60 exit 21 of 60, 4 bytes]"
	for _, c := range []struct {
		name  string
		calls callbacks
		names []string // in place of a pattern
		want  string
	}{
		{"test_fprobe_entry", callbacks{}, nil, "[entry 30 entry 60]"},
		{"test_fprobe", callbacks{exit: true}, nil, both},
		{"test_fprobe_syms", callbacks{exit: true}, []string{"target", "target2"}, both},
		{"test_fprobe_skip", callbacks{skip: 1, exit: true}, nil, "[entry 30 entry 60]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog := start(t, "prey")
			s := attach(t, prog.PID(), kprobes.Options{})
			var rps []*kprobes.Kretprobe
			if c.names == nil {
				rps = glob(t, s, "target*", c.calls.probe)
			}
			for _, name := range c.names {
				rp := c.calls.probe()
				rp.KP.SymbolName = name
				rps = append(rps, rp)
			}
			registerReturns(t, s, rps...)
			prog.Do("call target 30", "ret")
			prog.Do("call target2 60", "ret")
			for _, rp := range rps {
				wantReturns(t, rp, 1, uint64(1-c.calls.skip), 0)
			}
			ok(t, s.UnregisterKretprobes(rps))
			prog.Do("call target 30", "ret")
			if got := fmt.Sprint(c.calls.log); len(rps) != 2 || got != c.want {
				t.Errorf("%d functions, callbacks %s, want %s", len(rps), got, c.want)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestFprobesOfUnknownNames: one unknown name and none is registered (C41). What is not
// registered is unregistered without an error, as kretprobes are and fprobes are not.
func TestFprobesOfUnknownNames(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	rps := []*kprobes.Kretprobe{{KP: kprobes.Kprobe{SymbolName: "target"}}, {KP: kprobes.Kprobe{SymbolName: "no_target"}}}
	ok(t, s.UnregisterKretprobes(rps))
	if err := s.RegisterKretprobes(t.Context(), rps); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
	if _, err := s.Symbols().Resolve(t.Context(), "no_tar*"); err == nil {
		t.Error("a pattern without a match is no error")
	}
	prog.Do("call target 30", "ret")
	wantReturns(t, rps[0], 0, 0, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestFprobesOfOneFunction is test_fprobe_multi: two of them, in either order of registration,
// and every callback runs once.
func TestFprobesOfOneFunction(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	for _, order := range [][]string{{"one", "two"}, {"two", "one"}} {
		var log []string
		var rps []*kprobes.Kretprobe
		for _, name := range order {
			note := func(when string) kprobes.KretprobeHandler {
				return func(*kprobes.KretprobeInstance, *kprobes.Regs) int { log = append(log, name+" "+when); return 0 }
			}
			some := glob(t, s, "target*", func() *kprobes.Kretprobe {
				return &kprobes.Kretprobe{EntryHandler: note("entry"), Handler: note("exit")}
			})
			registerReturns(t, s, some...)
			rps = append(rps, some...)
		}
		prog.Do("call target2 30", "ret")
		slices.Sort(log)
		if got := fmt.Sprint(log); got != "[one entry one exit two entry two exit]" {
			t.Errorf("%v: callbacks %s", order, got)
		}
		ok(t, s.UnregisterKretprobes(rps))
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestAHandlerMakesTheThreadCall is int3_selftest of arch/x86/kernel/alternative.c: the handler
// emulates a call, the callee gets its argument and writes through it, and returns behind the
// probed instruction.
func TestAHandlerMakesTheThreadCall(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	callee, err := s.Symbols().Resolve(t.Context(), "magic_callee")
	ok(t, err)
	const nop = 5
	kp := &kprobes.Kprobe{SymbolName: "magic_site", PreHandler: func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
		r.SetSP(r.SP() - 8)
		if err := r.WriteUint64(r.SP(), uint64(kp.Addr+nop)); err != nil {
			t.Error(err)
		}
		r.SetIP(callee[0].Addr)
		return 1
	}}
	for _, probed := range []bool{false, true} {
		want := "ret 5"
		if probed {
			register(t, s, kp)
			want = fmt.Sprint("ret ", 5+0x1234)
		}
		if got := prog.Do("call magic 5", "ret"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	wantHits(t, kp, 1)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSelfTestOfTraceEvents is kprobe_trace_self_tests_init of kernel/trace/trace_kprobe.c: an entry
// and a return of a function with six arguments, with $stack, $stack0, +0($stack) and $retval;
// one hit each; what is deleted is not hit.
func TestSelfTestOfTraceEvents(t *testing.T) {
	prog := start(t, "prey")
	s := attach(t, prog.PID(), kprobes.Options{})
	var stack, behind arch.Addr
	var stack0, result uint64
	kp := &kprobes.Kprobe{SymbolName: "sum6", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		stack = r.SP()
		word, err := r.ReadUint64(stack)
		if stack0 = word; err != nil {
			t.Error(err)
		}
		return 0
	}}
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "sum6"}, Handler: func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		result, behind = r.ReturnValue(), r.SP()
		if uint64(ri.RetAddr) != stack0 {
			t.Errorf("it returns to %s, the stack held %#x", ri.RetAddr, stack0)
		}
		return 0
	}}
	register(t, s, kp)
	registerReturns(t, s, rp)
	if got := prog.Do("call six 1", "ret"); got != "ret 21" || result != 21 {
		t.Errorf("%s, $retval %d", got, result)
	}
	if stack == 0 || behind != stack+8 {
		t.Errorf("$stack is %s, and %s at the return", stack, behind)
	}
	wantHits(t, kp, 1)
	wantReturns(t, rp, 1, 1, 0)
	ok(t, s.UnregisterKprobe(kp))
	ok(t, s.UnregisterKretprobe(rp))
	prog.Do("call six 2", "ret")
	wantHits(t, kp, 1)
	wantReturns(t, rp, 1, 1, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

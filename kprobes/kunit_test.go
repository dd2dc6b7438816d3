package kprobes_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestKUnit is lib/tests/test_kprobes.c of the kernel, case by case, on a program that is built
// in several ways; also those of jprobes, which went with them in 4.19.
func TestKUnit(t *testing.T) {
	cases := []struct {
		name string
		run  func(*kunit)
	}{
		{"test_kprobe", (*kunit).kprobe},
		{"test_kprobes", (*kunit).kprobes},
		{"test_kprobe_missed", (*kunit).kprobeMissed},
		{"test_kretprobe", (*kunit).kretprobe},
		{"test_kretprobes", (*kunit).kretprobes},
		{"test_jprobe", (*kunit).jprobe},
		{"test_jprobes", (*kunit).jprobes},
		{"test_stacktrace_on_kretprobe", (*kunit).stacktraceOnKretprobe},
		{"test_stacktrace_on_nested_kretprobe", (*kunit).stacktraceOnNestedKretprobe},
	}
	builds := []struct {
		name  string
		flags []string
	}{
		{"frame pointers", []string{"-fno-omit-frame-pointer"}},
		{"landing pads", []string{"-fcf-protection=branch"}},
		{"static PIE", []string{"-static-pie"}},
	}
	for _, b := range builds {
		for _, c := range cases {
			t.Run(b.name+"/"+c.name, func(t *testing.T) {
				prog := testprog.Start(t, testprog.Build(t, "prey", b.flags...))
				k := &kunit{t: t, prog: prog, s: attach(t, prog.PID(), kprobes.Options{})}
				c.run(k)
				closeSession(t, k.s)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

// kunit is one case. Values pass from one handler to the next by what the kernel's pass by
// global variables.
type kunit struct {
	t    *testing.T
	prog *testprog.Prog
	s    *kprobes.Session

	pre, post, entry, ret uint64
}

// call calls one of the targets, then 50 times in each of four threads.
func (k *kunit) call(target string, arg, want uint64) {
	k.t.Helper()
	if got := k.prog.Do(fmt.Sprintf("call %s %d", target, arg), "ret"); got != fmt.Sprintf("ret %d", want) {
		k.t.Errorf("%s(%d): %s, want %d", target, arg, got, want)
	}
}

func (k *kunit) threads(target string) {
	k.t.Helper()
	if got := k.prog.Do("threads 4 50 "+target, "sum"); number(k.t, got, "count") != 200 {
		k.t.Errorf("%s: %s", target, got)
	}
}

func (k *kunit) probe(target string) *kprobes.Kprobe {
	return &kprobes.Kprobe{
		SymbolName: target,
		PreHandler: func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
			if r.IP() != kp.Addr+1 {
				k.t.Errorf("IP is %s in the PreHandler of %s", r.IP(), kp.Addr)
			}
			k.pre, _ = r.Arg(0)
			return 0
		},
		PostHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) {
			if arg, _ := r.Arg(0); arg != k.pre {
				k.t.Errorf("the PostHandler sees %d, the PreHandler %d", arg, k.pre)
			}
			k.post = k.pre + 1
		},
	}
}

func (k *kunit) want(name string, got, want uint64) {
	k.t.Helper()
	if got != want {
		k.t.Errorf("%s is %d, want %d", name, got, want)
	}
}

func (k *kunit) kprobe() {
	kp := k.probe("target")
	register(k.t, k.s, kp)
	k.call("target", 31, 10)
	k.want("pre", k.pre, 31)
	k.want("post", k.post, 32)
	ok(k.t, k.s.UnregisterKprobe(kp))
	k.want("hits", kp.Hits(), 1)
	k.call("target", 61, 20)
	k.want("pre after unregistration", k.pre, 31)
}

func (k *kunit) kprobes() {
	kp, kp2 := k.probe("target"), k.probe("target2")
	register(k.t, k.s, kp)
	ok(k.t, k.s.UnregisterKprobe(kp))
	if err := k.s.RegisterKprobe(kp); !errors.Is(err, unix.EINVAL) {
		k.t.Errorf("without a reset: %v", err)
	}
	kp.Addr, kp.Flags = 0, 0
	register(k.t, k.s, kp, kp2)
	k.call("target", 31, 10)
	k.want("post of target", k.post, 32)
	k.call("target2", 61, 21)
	k.want("post of target2", k.post, 62)
	k.want("hits of target", kp.Hits(), 1)
	k.want("hits of target2", kp2.Hits(), 1)
	ok(k.t, k.s.UnregisterKprobes([]*kprobes.Kprobe{kp, kp2}))
	k.call("target", 91, 30)
	k.want("post after unregistration", k.post, 62)
}

func (k *kunit) kprobeMissed() {
	recursed := symbol(k.t, k.s, "recursed_target")
	kp := &kprobes.Kprobe{SymbolName: "recursed_target"}
	kp.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		k.pre++
		wantCall(k.t, r, 20, recursed, 60)
		return 0
	}
	kp.PostHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs, _ uint64) {
		k.post++
		wantCall(k.t, r, 20, recursed, 60)
	}
	register(k.t, k.s, kp)
	k.call("recursed_target", 31, 10)
	k.want("pre", k.pre, 1)
	k.want("post", k.post, 1)
	k.want("nmissed", kp.NMissed(), 2)
	k.want("hits", kp.Hits(), 1)
}

// retprobe has the EntryHandler note the argument and the Handler the result.
func (k *kunit) retprobe(target string, more uint64) *kprobes.Kretprobe {
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: target}, MaxActive: 10, DataSize: 8}
	rp.EntryHandler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		k.entry, _ = r.Arg(0)
		binary.LittleEndian.PutUint64(ri.Data, k.entry)
		return 0
	}
	rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		k.ret = r.ReturnValue()
		if arg := binary.LittleEndian.Uint64(ri.Data); k.ret != arg/3+more {
			k.t.Errorf("%s(%d) returns %d", target, arg, k.ret)
		}
		return 0
	}
	return rp
}

func (k *kunit) kretprobe() {
	rp := k.retprobe("target", 0)
	registerReturns(k.t, k.s, rp)
	k.call("target", 31, 10)
	k.want("the argument", k.entry, 31)
	k.want("the result", k.ret, 10)
	k.threads("target")
	wantReturns(k.t, rp, 201, 201, 0)
	ok(k.t, k.s.UnregisterKretprobe(rp))
	k.entry, k.ret = 0, 0
	k.call("target", 61, 20)
	k.want("the argument after unregistration", k.entry, 0)
	k.want("the result after unregistration", k.ret, 0)
	wantReturns(k.t, rp, 201, 201, 0)
}

func (k *kunit) kretprobes() {
	rp, rp2 := k.retprobe("target", 0), k.retprobe("target2", 1)
	registerReturns(k.t, k.s, rp)
	ok(k.t, k.s.UnregisterKretprobe(rp))
	rp.KP.Addr, rp.KP.Flags = 0, 0
	registerReturns(k.t, k.s, rp, rp2)
	k.call("target", 31, 10)
	k.want("the result of target", k.ret, 10)
	k.call("target2", 61, 21)
	k.want("the result of target2", k.ret, 21)
	wantReturns(k.t, rp, 1, 1, 0)
	wantReturns(k.t, rp2, 1, 1, 0)
	ok(k.t, k.s.UnregisterKretprobes([]*kprobes.Kretprobe{rp, rp2}))
}

// jentry is the body of a Jprobe: the parameter is the function's.
func (k *kunit) jentry(target string) *kprobes.Jprobe {
	return &kprobes.Jprobe{
		KP: kprobes.Kprobe{SymbolName: target},
		Entry: func(value int64) {
			k.entry = uint64(value)
			kprobes.JprobeReturn()
			k.t.Error("JprobeReturn returned")
		},
	}
}

func (k *kunit) jprobe() {
	jp := k.jentry("target")
	ok(k.t, k.s.RegisterJprobe(jp))
	k.call("target", 31, 10)
	k.want("the argument", k.entry, 31)
	k.threads("target")
	wantHits(k.t, &jp.KP, 201)
	ok(k.t, k.s.UnregisterJprobe(jp))
	k.entry = 0
	k.call("target", 61, 20)
	k.want("the argument after unregistration", k.entry, 0)
}

func (k *kunit) jprobes() {
	jp, jp2 := k.jentry("target"), k.jentry("target2")
	ok(k.t, k.s.RegisterJprobe(jp))
	ok(k.t, k.s.UnregisterJprobe(jp))
	jp.KP.Addr, jp.KP.Flags = 0, 0
	ok(k.t, k.s.RegisterJprobes(context.Background(), []*kprobes.Jprobe{jp, jp2}))
	k.call("target", 31, 10)
	k.want("the argument of target", k.entry, 31)
	k.call("target2", 61, 21)
	k.want("the argument of target2", k.entry, 61)
	wantHits(k.t, &jp.KP, 1)
	wantHits(k.t, &jp2.KP, 1)
	ok(k.t, k.s.UnregisterJprobes([]*kprobes.Jprobe{jp, jp2}))
}

// stack is where stack_internal, stack_target and stack_driver return to, as they see it
// themselves: what they find on the stack.
func (k *kunit) stack() (internal, target, driver arch.Addr) {
	k.t.Helper()
	k.call("stack_driver", 30, 10)
	if _, err := fmt.Sscanf(k.prog.Do("stack", "stack"), "stack %v %v %v", &internal, &target, &driver); err != nil {
		k.t.Fatal(err)
	}
	return internal, target, driver
}

func (k *kunit) stacktraceOnKretprobe() {
	var at arch.Addr
	var trace []arch.Addr
	rp := k.retprobe("stack_target", 1)
	rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		at, trace = r.IP(), addresses(r)
		if ri.RetAddr != at {
			k.t.Errorf("RetAddr is %s, IP %s", ri.RetAddr, at)
		}
		return 0
	}
	_, target, driver := k.stack()
	registerReturns(k.t, k.s, rp)
	if _, now, above := k.stack(); now != target || above != driver {
		k.t.Errorf("the stack holds %s, %s, and %s, %s without a probe", now, above, target, driver)
	}
	if at != target || len(trace) < 3 || trace[0] != target || trace[1] != driver {
		k.t.Errorf("IP %s, the stack is %v; want %s, %s", at, trace, target, driver)
	}
	wantReturns(k.t, rp, 1, 1, 0)
}

func (k *kunit) stacktraceOnNestedKretprobe() {
	var inner, outer []arch.Addr
	rp, rp2 := k.retprobe("stack_target", 1), k.retprobe("stack_driver", 0)
	nested := k.retprobe("stack_internal", 0)
	nested.Handler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int { inner = addresses(r); return 0 }
	rp.Handler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int { outer = addresses(r); return 0 }
	internal, target, driver := k.stack()
	registerReturns(k.t, k.s, rp, rp2, nested)
	k.stack()
	if len(inner) < 4 || inner[0] != internal || inner[1] != target || inner[2] != driver {
		k.t.Errorf("the stack is %v; want %s, %s, %s", inner, internal, target, driver)
	}
	if len(outer) < 3 || outer[0] != target || outer[1] != driver {
		k.t.Errorf("the stack is %v; want %s, %s", outer, target, driver)
	}
	wantReturns(k.t, rp2, 1, 1, 0)
}

// addresses is a backtrace without names.
func addresses(r *kprobes.Regs) (at []arch.Addr) {
	for _, f := range r.Backtrace(16) {
		at = append(at, f.Addr)
	}
	return at
}

package kprobes_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestFieldsOfAKretprobe (A5, A6, A7, A57, A58, A59): what registration does with each of them.
func TestFieldsOfAKretprobe(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}}) // of calls that are missed
	overwritten := func(*kprobes.Kprobe, *kprobes.Regs) int { t.Error("the caller's PreHandler ran"); return 0 }
	j := keepJournal("third")
	rp := &j.Kretprobe
	rp.KP.PreHandler = overwritten
	rp.KP.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) { t.Error("the caller's PostHandler ran") }
	rp.KP.FaultHandler = func(*kprobes.Kprobe, *kprobes.Regs, int) int { t.Error("the caller's FaultHandler ran"); return 0 }
	for _, c := range []struct{ give, want int }{
		{-1, max(10, 2*runtime.NumCPU())},
		{0, max(10, 2*runtime.NumCPU())},
		{1, 1},
		{math.MaxInt, math.MaxInt},
	} {
		rp.KP.Addr, rp.KP.Flags, rp.MaxActive, rp.DataSize = 0, 0, c.give, 4096
		registerReturns(t, s, rp)
		if rp.MaxActive != c.want {
			t.Errorf("MaxActive %d became %d, want %d", c.give, rp.MaxActive, c.want)
		}
		wantReturns(t, rp, 0, 0, 0)
		if got := prog.Do("call third 30", "ret"); got != "ret 10" {
			t.Errorf("got %q", got)
		}
		prog.Do("page 9", "ret") // returns to where it can't be followed
		wantReturns(t, rp, 2, 1, 1)
		ok(t, s.UnregisterKretprobe(rp))
	}
	if found, err := s.Symbols().Resolve(t.Context(), "third"); err != nil || rp.KP.Addr != found[0].Addr {
		t.Errorf("Addr is %s, want %v, %v", rp.KP.Addr, found, err)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestKretprobesAreRegisteredAgain (A17, A39): as for kprobes.
func TestKretprobesAreRegisteredAgain(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	j := keepJournal("third")
	rp := &j.Kretprobe
	registerReturns(t, s, rp)
	if err := s.RegisterKretprobe(rp); !errors.Is(err, kprobes.ErrRegistered) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("twice: %v", err)
	}
	prog.Do("call third 30", "ret")
	wantReturns(t, rp, 1, 1, 0)
	ok(t, s.UnregisterKretprobe(rp))
	if err := s.RegisterKretprobe(rp); !errors.Is(err, unix.EINVAL) {
		t.Errorf("without a reset: %v", err)
	}
	rp.KP.Addr = 0
	registerReturns(t, s, rp)
	prog.Do("call third 30", "ret")
	wantReturns(t, rp, 0, 0, 0)
	ok(t, s.EnableKretprobe(rp))
	prog.Do("call third 30", "ret")
	wantReturns(t, rp, 1, 1, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestBatchesOfKretprobes (A44, A45, A46): one that fails takes back what came before it and
// leaves the others alone; unregistration skips what is not registered.
func TestBatchesOfKretprobes(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	first, last := keepJournal("third"), keepJournal("tail")
	for _, bad := range []*kprobes.Kretprobe{
		{KP: kprobes.Kprobe{SymbolName: "tail", Offset: 4}},
		{KP: kprobes.Kprobe{SymbolName: "tail"}, DataSize: 5000},
		{KP: kprobes.Kprobe{SymbolName: "no_such_function"}},
	} {
		err := s.RegisterKretprobes(t.Context(), []*kprobes.Kretprobe{&first.Kretprobe, bad, &last.Kretprobe})
		if err == nil {
			t.Fatalf("%s: no error", bad.KP.SymbolName)
		}
		prog.Do("call third 30", "ret")
		prog.Do("call tail 30", "ret")
		if len(first.entered)+len(last.entered) != 0 || last.KP.Addr != 0 || last.MaxActive != 0 {
			t.Errorf("%v: %v entered, %v entered, the last is at %s", err, first.entered, last.entered, last.KP.Addr)
		}
		first.KP.Addr, first.KP.Flags = 0, 0
	}
	registerReturns(t, s, &first.Kretprobe, &last.Kretprobe)
	stranger := &kprobes.Kretprobe{KP: kprobes.Kprobe{Addr: 4711}}
	ok(t, s.UnregisterKretprobes([]*kprobes.Kretprobe{&first.Kretprobe, stranger, &last.Kretprobe}))
	ok(t, s.UnregisterKretprobes(nil))
	prog.Do("call third 30", "ret")
	if stranger.KP.Addr != 0 || len(first.entered) != 0 {
		t.Errorf("stranger at %s, %v entered", stranger.KP.Addr, first.entered)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestKretprobesOfTheBlacklist (A20, A55) are refused as kprobes are.
func TestKretprobesOfTheBlacklist(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	ok(t, s.Blacklist("chain*"))
	err := s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "chain2"}})
	if !errors.Is(err, kprobes.ErrBlacklisted) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("chain2: %v", err)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestEveryFollowedCallHasItsReturn (C5, C6, C7, C42): an EntryHandler decides call by call, in
// four threads at once.
func TestEveryFollowedCallHasItsReturn(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	open, returns, let := map[string]int{}, 0, uint64(0)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "counted"}}
	call := func(r *kprobes.Regs) string { return fmt.Sprint(r.TID()) }
	rp.EntryHandler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		if arg, _ := r.Arg(0); arg%3 == 1 {
			let++
			return -1
		}
		open[call(r)]++
		return 0
	}
	rp.Handler = func(_ *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		open[call(r)]--
		if returns++; r.ReturnValue()%3 == 2 || open[call(r)] != 0 {
			t.Errorf("a return of %d, %d open", r.ReturnValue(), open[call(r)])
		}
		return 0
	}
	registerReturns(t, s, rp)
	if got := prog.Do("bump 300", "did"); got != "did 1200" {
		t.Errorf("got %q", got)
	}
	wantReturns(t, rp, 1200, 800, 0)
	if returns != 800 || let != 400 {
		t.Errorf("%d returns, %d were let go", returns, let)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestKretprobesBesideKprobes (B35, B37): a Kretprobe is one more probe of its site, and all of
// them see every call; what their Handlers return means nothing (C8).
func TestKretprobesBesideKprobes(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	var log []string
	note := func(what string) { log = append(log, what) }
	kprobe := func(name string) *kprobes.Kprobe {
		return &kprobes.Kprobe{SymbolName: "third", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { note(name); return 0 }}
	}
	kretprobe := func(name string) *kprobes.Kretprobe {
		return &kprobes.Kretprobe{
			KP:           kprobes.Kprobe{SymbolName: "third"},
			EntryHandler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { note(name); return 0 },
			Handler:      func(*kprobes.KretprobeInstance, *kprobes.Regs) int { note(name + "'"); return 1 },
		}
	}
	register(t, s, kprobe("a"))
	registerReturns(t, s, kretprobe("b"))
	register(t, s, kprobe("c"))
	registerReturns(t, s, kretprobe("d"))
	behind := kprobe("e") // at the return address: hit after the Handlers
	where := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "third"}}
	where.Handler = func(ri *kprobes.KretprobeInstance, _ *kprobes.Regs) int { behind.Addr = ri.RetAddr; return 0 }
	registerReturns(t, s, where)
	prog.Do("call third 30", "ret")
	behind.SymbolName = ""
	register(t, s, behind)
	for range 2 {
		log = nil
		if got := prog.Do("call third 30", "ret"); got != "ret 10" {
			t.Errorf("got %q", got)
		}
		if got := strings.Join(log, " "); got != "d c b a b' d' e" {
			t.Errorf("order %s", got)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestHandlersSeeTheTrueReturnAddress (C4, C13, C14, C15, C24), of stacked probes, and of calls
// that end in a jump to another followed function.
func TestHandlersSeeTheTrueReturnAddress(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	var log []string
	var want arch.Addr
	var rps []*kprobes.Kretprobe
	for _, name := range []string{"tail", "tail", "tail_end", "bare"} {
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: name}}
		rp.EntryHandler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			ret, err := r.ReadUint64(r.SP())
			if want == 0 {
				want = arch.Addr(ret)
			}
			log = append(log, fmt.Sprint(name, " ", arch.Addr(ret) == want, err == nil, ri.RetAddr == 0))
			return 0
		}
		rp.Handler = func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
			log = append(log, fmt.Sprint(name, "' ", ri.RetAddr == want, r.IP() == want))
			return 0
		}
		rps = append(rps, rp)
	}
	registerReturns(t, s, rps...)
	for _, c := range []struct{ call, ret, log string }{
		{"call tail 30", "ret 36", "tail true true true, tail true true true, tail_end true true true, tail_end' true true, tail' true true, tail' true true"},
		{"call bare 30", "ret", "bare true true true, bare' true true"},
	} {
		log, want = nil, 0
		if got := prog.Do(c.call, "ret"); !strings.HasPrefix(got, c.ret) {
			t.Errorf("got %q", got)
		}
		if got := strings.Join(log, ", "); got != c.log {
			t.Errorf("%s: %s, want %s", c.call, got, c.log)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestForgedArrivalsAreNoReturns (C20, C21, C26): a thread that comes by a return address in
// another way than from the call goes on, and nothing is run or counted.
func TestForgedArrivalsAreNoReturns(t *testing.T) {
	prog := start(t, "kret")
	s := attach(t, prog.PID(), kprobes.Options{})
	forged, nested := keepJournal("forged"), keepJournal("nested")
	registerReturns(t, s, &forged.Kretprobe, &nested.Kretprobe)
	for _, c := range []struct{ command, want string }{
		{"forge 3 100", "ret 111"},
		{"call nest 5", "ret 7"},
	} {
		for range 3 {
			if got := prog.Do(c.command, "ret"); got != c.want {
				t.Errorf("%s: %q, want %s", c.command, got, c.want)
			}
		}
	}
	wantReturns(t, &forged.Kretprobe, 3, 3, 0)
	wantReturns(t, &nested.Kretprobe, 3, 3, 0)
	if got := fmt.Sprint(forged.returned, nested.returned); got != "[10 10 10] [6 6 6]" {
		t.Errorf("results %s", got)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

package kprobes_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
)

func registerReturns(t testing.TB, s *kprobes.Session, rps ...*kprobes.Kretprobe) {
	t.Helper()
	if err := s.RegisterKretprobes(t.Context(), rps); err != nil {
		t.Fatalf("register: %v", err)
	}
}

func wantReturns(t testing.TB, rp *kprobes.Kretprobe, entries, returns, missed uint64) {
	t.Helper()
	if rp.KP.Hits() != entries || rp.Hits() != returns || rp.NMissed() != missed || rp.KP.NMissed() != 0 {
		t.Errorf("%s: %d entries, %d returns, %d missed, %d of the entry; want %d, %d, %d, 0",
			rp.KP.SymbolName, rp.KP.Hits(), rp.Hits(), rp.NMissed(), rp.KP.NMissed(), entries, returns, missed)
	}
}

// TestAKretprobeSeesEntryAndReturn: both handlers of a call, in any place (C4, C7, C15, C16).
func TestAKretprobeSeesEntryAndReturn(t *testing.T) {
	for _, noBoost := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoBoost=%v", noBoost), func(t *testing.T) {
			prog := start(t, "conform")
			s := attach(t, prog.PID(), kprobes.Options{NoBoost: noBoost})
			var log []string
			var caller arch.Addr
			rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "third"}, DataSize: 8}
			rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
				arg, _ := regs.Arg(0)
				ret, err := regs.ReadUint64(regs.SP())
				caller = arch.Addr(ret)
				log = append(log, fmt.Sprint("entry ", arg, ri.RetAddr, regs.IP()-rp.KP.Addr, len(ri.Data), err, ri.Kretprobe() == rp))
				binary.LittleEndian.PutUint64(ri.Data, arg)
				return 0
			}
			rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
				log = append(log, fmt.Sprint("return ", regs.ReturnValue(), ri.RetAddr == caller, regs.IP() == caller, binary.LittleEndian.Uint64(ri.Data), ri.Kretprobe() == rp))
				regs.SetReturnValue(regs.ReturnValue() + 1)
				regs.SetIP(4711)
				return 1
			}
			registerReturns(t, s, rp)
			for i := range 2 {
				log = nil
				if got := prog.Do("call third 30", "ret"); got != "ret 11" {
					t.Errorf("got %q, want ret 11", got)
				}
				if got, want := strings.Join(log, "; "), "entry 30 0x0 0x1 8 <nil> true; return 10 true true 30 true"; got != want {
					t.Errorf("call %d: %s, want %s", i, got, want)
				}
			}
			wantReturns(t, rp, 2, 2, 0)
			if rp.MaxActive < 10 {
				t.Errorf("MaxActive is %d", rp.MaxActive)
			}
			if err := s.UnregisterKretprobe(rp); err != nil {
				t.Error(err)
			}
			if got := prog.Do("call third 30", "ret"); got != "ret 10" || rp.Hits() != 2 {
				t.Errorf("unregistered: %q, %d hits", got, rp.Hits())
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestRecursiveCallsAreAllFollowed, as far as there are instances (C1, C2, C10, C11).
func TestRecursiveCallsAreAllFollowed(t *testing.T) {
	prog := start(t, "conform")
	want := prog.Do("call nested 20", "ret")
	s := attach(t, prog.PID(), kprobes.Options{})
	for _, max := range []int{50, 5} {
		var open []uint64
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "nested"}, MaxActive: max}
		entered := 0
		rp.EntryHandler = func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			arg, _ := regs.Arg(0)
			open = append(open, arg)
			entered++
			return 0
		}
		rp.Handler = func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			arg := open[len(open)-1]
			open = open[:len(open)-1]
			sum := uint64(0)
			for ; arg > 0; arg-- {
				sum += arg/3 + 1
			}
			if regs.ReturnValue() != sum {
				t.Errorf("returned %d, want %d", regs.ReturnValue(), sum)
			}
			return 0
		}
		registerReturns(t, s, rp)
		if got := prog.Do("call nested 20", "ret"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		followed := uint64(min(max, 21))
		wantReturns(t, rp, 21, followed, 21-followed)
		if uint64(entered) != followed {
			t.Errorf("%d EntryHandlers ran, want %d", entered, followed)
		}
		if err := s.UnregisterKretprobe(rp); err != nil {
			t.Error(err)
		}
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestSeveralKretprobesOfAFunction: entries latest registered first, returns the other way
// round (C12, C13), a Kprobe in front may take the call away (B36).
func TestSeveralKretprobesOfAFunction(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	var log []string
	var rps []*kprobes.Kretprobe
	for i := range 3 {
		rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "third"}}
		rp.EntryHandler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int {
			log = append(log, fmt.Sprint("e", i))
			return b2i(i == 1) // lets the call go (C5)
		}
		rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			log = append(log, fmt.Sprint("r", i, regs.IP() == ri.RetAddr))
			return 0
		}
		rps = append(rps, rp)
	}
	registerReturns(t, s, rps...)
	if got := prog.Do("call third 30", "ret"); got != "ret 10" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(log, " "); got != "e2 e1 e0 r0 true r2 true" {
		t.Errorf("order %s", got)
	}
	wantReturns(t, rps[0], 1, 1, 0)
	wantReturns(t, rps[1], 1, 0, 0)
	kp := &kprobes.Kprobe{SymbolName: "third", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		r.SetReturnValue(77)
		ret, _ := r.ReadUint64(r.SP())
		r.SetIP(arch.Addr(ret))
		r.SetSP(r.SP() + 8)
		return 1
	}}
	register(t, s, kp)
	if got := prog.Do("call third 30", "ret"); got != "ret 77" {
		t.Errorf("got %q", got)
	}
	wantReturns(t, rps[0], 1, 1, 0)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestKretprobesOfManyThreads: each has its own calls.
func TestKretprobesOfManyThreads(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	args := map[int]uint64{}
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "counted"}, DataSize: 8}
	rp.EntryHandler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		arg, _ := regs.Arg(0)
		binary.LittleEndian.PutUint64(ri.Data, arg)
		args[regs.TID()]++
		return 0
	}
	rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		if got := binary.LittleEndian.Uint64(ri.Data); regs.ReturnValue() != got+1 {
			t.Errorf("counted(%d) is %d", got, regs.ReturnValue())
		}
		return 0
	}
	registerReturns(t, s, rp)
	if got := prog.Do("bump 500", "did"); got != "did 2000" {
		t.Errorf("got %q", got)
	}
	wantReturns(t, rp, 2000, 2000, 0)
	if len(args) != 4 {
		t.Errorf("%d threads", len(args))
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestRefusedKretprobes (A43, A54, A56, A60).
func TestRefusedKretprobes(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	for _, c := range []struct {
		rp    *kprobes.Kretprobe
		err   error
		errno unix.Errno
	}{
		{&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "go_next", Offset: 4}}, kprobes.ErrNotEntry, unix.EINVAL},
		{&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "third"}, DataSize: 4097}, kprobes.ErrDataSize, unix.E2BIG},
		{&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "third"}, DataSize: -1}, kprobes.ErrDataSize, unix.E2BIG},
		{&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "nosuch"}}, kprobes.ErrUnknownSymbol, unix.ENOENT},
		{&kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "third", Addr: 1}}, kprobes.ErrBothAddrAndSymbol, unix.EINVAL},
		{&kprobes.Kretprobe{}, kprobes.ErrNoAddrOrSymbol, unix.EINVAL},
	} {
		err := s.RegisterKretprobe(c.rp)
		if !errors.Is(err, c.err) || !errors.Is(err, c.errno) {
			t.Errorf("%+v: %v, want %v", c.rp.KP.SymbolName, err, c.err)
		}
	}
	never := &kprobes.Kretprobe{KP: kprobes.Kprobe{Addr: 4711}}
	if err := s.UnregisterKretprobe(never); err != nil || never.KP.Addr != 0 {
		t.Errorf("%v, Addr %s", err, never.KP.Addr)
	}
	if err := s.RegisterKretprobes(t.Context(), nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("none: %v", err)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

package amd64_test

import (
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

func TestSubRegistersReadTheirPart(t *testing.T) {
	const v = 0x1122334455667788
	whole := map[string][]string{ // 64, 32, 16, 8 low, 8 high
		"rax": {"eax", "ax", "al", "ah"}, "rbx": {"ebx", "bx", "bl", "bh"},
		"rcx": {"ecx", "cx", "cl", "ch"}, "rdx": {"edx", "dx", "dl", "dh"},
		"rsi": {"esi", "si", "sil"}, "rdi": {"edi", "di", "dil"},
		"rbp": {"ebp", "bp", "bpl"}, "rsp": {"esp", "sp", "spl"},
		"r8": {"r8d", "r8w", "r8b"}, "r9": {"r9d", "r9w", "r9b"}, "r10": {"r10d", "r10w", "r10b"}, "r11": {"r11d", "r11w", "r11b"},
		"r12": {"r12d", "r12w", "r12b"}, "r13": {"r13d", "r13w", "r13b"}, "r14": {"r14d", "r14w", "r14b"}, "r15": {"r15d", "r15w", "r15b"},
	}
	parts := []uint64{0x55667788, 0x7788, 0x88, 0x77}
	for name, subs := range whole {
		var r amd64.Regs
		if !r.Set(name, v) {
			t.Errorf("%s can't be set", name)
		}
		for n, sub := range subs {
			if got, ok := r.Get(sub); !ok || got != parts[n] {
				t.Errorf("%s: %#x, %t", sub, got, ok)
			}
			if r.Set(sub, 1) {
				t.Errorf("%s was set", sub)
			}
		}
	}
}

func TestNamesThatAreNoRegisters(t *testing.T) {
	var r amd64.Regs
	for _, name := range []string{"", "r", "a", "l", "x", "ex", "eal", "r16", "r8q", "sih", "ip", "xl", "RAX", "il", "pl", "st0", "rflag", "exx", "r1d"} {
		if v, ok := r.Get(name); ok {
			t.Errorf("%q: %#x", name, v)
		}
		if r.Set(name, 1) {
			t.Errorf("%q was set", name)
		}
	}
}

func TestEveryNamedRegisterIsItsOwn(t *testing.T) {
	r := amd64.Regs{Cs: 0x33, Ss: 0x2b}
	names := r.Names()
	value := func(n int) uint64 { return uint64(n+1)<<2 | 3 } // a selector's level is the program's own
	for n, name := range names {
		if !r.Set(name, value(n)) {
			t.Errorf("%s can't be set", name)
		}
	}
	for n, name := range names {
		if v, ok := r.Get(name); !ok || v != value(n) {
			t.Errorf("%s: %d, %t, want %d", name, v, ok, value(n))
		}
	}
	names[0] = "changed"
	if r.Names()[0] != "rax" {
		t.Error("Names shares its slice")
	}
	if v, _ := r.Get("rflags"); v != r.Eflags {
		t.Error("rflags is not eflags")
	}
}

func TestArgumentsGoBySystemV(t *testing.T) {
	var r amd64.Regs
	for n, name := range []string{"rdi", "rsi", "rdx", "rcx", "r8", "r9"} {
		if !r.SetArg(n, uint64(n+10)) {
			t.Errorf("argument %d can't be set", n)
		}
		got, _ := r.Get(name)
		if v, ok := r.Arg(n); !ok || v != uint64(n+10) || got != v {
			t.Errorf("argument %d: %d, %t; %s is %d", n, v, ok, name, got)
		}
	}
	for _, n := range []int{-1, 6} {
		if _, ok := r.Arg(n); ok || r.SetArg(n, 1) {
			t.Errorf("argument %d is in a register", n)
		}
	}
}

func TestSetSyscallLoadsTheKernelsRegisters(t *testing.T) {
	r := amd64.Regs{Orig_rax: 7, Rbx: 1, Rsp: 2}
	r.SetSyscall(9, [6]uint64{1, 2, 3, 4, 5, 6}, 0x1000)
	want := amd64.Regs{Rax: 9, Rdi: 1, Rsi: 2, Rdx: 3, R10: 4, R8: 5, R9: 6, Rip: 0x1000, Orig_rax: ^uint64(0), Rbx: 1, Rsp: 2, Cs: 0x33}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestACloneIsIndependent(t *testing.T) {
	r := amd64.Arch{}.NewRegs()
	r.SetIP(1)
	r.SetSP(2)
	r.Set("rbp", 3)
	r.SetReturnValue(4)
	c := r.Clone()
	c.SetIP(10)
	got := []arch.Addr{r.IP(), r.SP(), r.FP(), arch.Addr(r.ReturnValue())}
	if !slices.Equal(got, []arch.Addr{1, 2, 3, 4}) {
		t.Errorf("%v", got)
	}
	if r.CopyFrom(c); r.IP() != 10 {
		t.Errorf("ip %s after CopyFrom", r.IP())
	}
}

// TestSetRefusesWhatTheKernelWouldNotTake: a thread has such values when it has loaded them itself; nobody else can give it one, nor give
// it back.
func TestSetRefusesWhatTheKernelWouldNotTake(t *testing.T) {
	for _, c := range []struct {
		reg    string
		was, v uint64
		want   bool
	}{
		{"gs_base", 0, 0x7000_0000_1000, true}, {"gs_base", 0, 0xffff_8000_0000_0000, false}, {"gs_base", 0xffff_8000_0000_0000, 8, false},
		{"gs_base", 0xffff_8000_0000_0000, 0xffff_8000_0000_0000, true}, {"fs_base", 0, 1 << 47, false},
		{"ds", 0, 0x2b, true}, {"ds", 0, 0x28, false}, {"ds", 0x28, 0x2b, false}, {"es", 0x2b, 0, true}, {"cs", 0x33, 0, false},
		{"ss", 0x2b, 1<<16 | 3, false}, {"rax", 0, 1 << 63, true},
	} {
		r := new(amd64.Regs)
		switch c.reg {
		case "gs_base":
			r.Gs_base = c.was
		case "ds":
			r.Ds = c.was
		case "es":
			r.Es = c.was
		case "cs":
			r.Cs = c.was
		case "ss":
			r.Ss = c.was
		}
		got, want := r.Set(c.reg, c.v), c.was
		if c.want {
			want = c.v
		}
		if now, _ := r.Get(c.reg); got != c.want || now != want {
			t.Errorf("%s: from %#x to %#x: %v, it is %#x", c.reg, c.was, c.v, got, now)
		}
	}
}

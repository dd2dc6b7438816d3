package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
)

// regs are registers by name.
type regs map[string]uint64

func (r regs) Get(name string) (uint64, bool) { v, ok := r[name]; return v, ok }

// memory is bytes by the address of the first.
type memory map[arch.Addr][]byte

var errFault = errors.New("fault")

func (m memory) ReadMemory(at arch.Addr, p []byte) error {
	for from, b := range m {
		if at < from || at > from+arch.Addr(len(b)) || int(at-from)+len(p) > len(b) {
			continue
		}
		copy(p, b[at-from:])
		return nil
	}
	return errFault
}

// words are numbers of 64 bits, one behind the other.
func words(all ...uint64) (b []byte) {
	for _, w := range all {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

var (
	testRegs = regs{"rdi": 0x1000, "rsi": 0xffff_ffff_ffff_ff85, "rdx": 3, "rcx": 4, "r8": 5, "r9": 6, "rax": 21, "rsp": 0x7000, "rip": 0x401001}
	testMem  = memory{
		0x1000: words(0x2000, 0xfedc_ba98_7654_3210, 0x1000, 0x10, 0x2000, 0x2007, 0x10, 0x2000),
		0x2000: append([]byte("test\x00xyworld\x00"), make([]byte, 4096)...),
		0x5ff8: words(0x0807_0605_0403_0201), // up to the end of its page
		0x7000: words(0x40_1234, 7, 8, 0x2000),
	}
	testEnv = Env{
		ABI:        host.C,
		Symbol:     func(name string) (arch.Addr, bool) { return 0x1000, name == "global" },
		FileOffset: func(off int64) (arch.Addr, bool) { return arch.Addr(0x1000 + off), off < 0x100 },
	}
	testHost = Host{Comm: "server", Symbolize: func(a arch.Addr) string {
		if a == 0x1000 {
			return "global+0x0/0x40"
		}
		return ""
	}}
)

// Types as the parser makes them.
var (
	u8, u16, u32, u64 = Type{"u8", Unsigned, 1, 0, 0, 0}, Type{"u16", Unsigned, 2, 0, 0, 0}, Type{"u32", Unsigned, 4, 0, 0, 0}, Type{"u64", Unsigned, 8, 0, 0, 0}
	s8, s16, s32, s64 = Type{"s8", Signed, 1, 0, 0, 0}, Type{"s16", Signed, 2, 0, 0, 0}, Type{"s32", Signed, 4, 0, 0, 0}, Type{"s64", Signed, 8, 0, 0, 0}
	x8, x16, x32, x64 = Type{"x8", Hex, 1, 0, 0, 0}, Type{"x16", Hex, 2, 0, 0, 0}, Type{"x32", Hex, 4, 0, 0, 0}, Type{"x64", Hex, 8, 0, 0, 0}
	char              = Type{"char", Char, 1, 0, 0, 0}
	str               = Type{Name: "string", Kind: String}
	ustr              = Type{Name: "ustring", Kind: UString}
	symbol            = Type{"symbol", SymbolOff, 8, 0, 0, 0}
	symstr            = Type{Name: "symstr", Kind: SymStr}
)

func bits(width, shift, size int) Type {
	return Type{fmt.Sprintf("b%d@%d/%d", width, shift, 8*size), BitField, size, width, shift, 0}
}

func array(t Type, n int) Type { t.Count = n; return t }

func reg(name string, derefs ...int64) Source { return from(Source{Name: name}, derefs...) }

func from(s Source, derefs ...int64) Source {
	for _, off := range derefs {
		s.Derefs = append(s.Derefs, Deref{Off: off})
	}
	return s
}

func TestValuesArePrintedAsTheKernelDoes(t *testing.T) {
	for _, c := range []struct {
		source Source
		typ    Type
		want   string
	}{
		{reg("rsi"), u8, "133"}, {reg("rsi"), u16, "65413"}, {reg("rsi"), u32, "4294967173"}, {reg("rsi"), u64, "18446744073709551493"},
		{reg("rsi"), s8, "-123"}, {reg("rsi"), s16, "-123"}, {reg("rsi"), s32, "-123"}, {reg("rsi"), s64, "-123"},
		{reg("rsi"), x8, "0x85"}, {reg("rsi"), x16, "0xff85"}, {reg("rsi"), x32, "0xffffff85"}, {reg("rsi"), x64, "0xffffffffffffff85"},
		{reg("rsi"), bits(4, 4, 4), "8"}, {reg("rsi"), bits(1, 1, 1), "0"}, {reg("rsi"), bits(64, 0, 8), "18446744073709551493"},
		{reg("rdi"), symbol, "global+0x0/0x40"}, {reg("rsp"), symbol, "0x7000"}, {reg("rdi"), symstr, `"global+0x0/0x40"`},
		{reg("rip"), Type{}, "4198401"},
		// memory
		{reg("rdi", 0), x64, "0x2000"}, {reg("rdi", 8), x8, "0x10"}, {reg("rdi", 9), s16, "21554"}, {reg("rdi", 12), s32, "-19088744"},
		{reg("rdi", 8), bits(4, 4, 4), "1"}, {reg("rdi", 16), symbol, "global+0x0/0x40"}, {reg("rdi", 16), symstr, `"global+0x0/0x40"`},
		{reg("rdi", 0, 0), char, "'t'"}, {reg("rdi", 0, -1), u8, "0"}, {reg("rdi", 16, 16, 24, 0), u8, "0"}, {reg("rdi", 16, 16, 24), u64, "16"},
		{reg("rdx", 0), s32, "0"}, {reg("rdx", 0, 8), x64, "0x0"},
		// strings
		{reg("rdi", 0, 0), str, `"test"`}, {reg("rdi", 0, 7), ustr, `"world"`}, {reg("rdi", 0, 4), str, `""`}, {reg("rdx", 0), str, "(fault)"},
		{reg("rdi", 24, 0), str, "(fault)"}, {reg("rdx", 0, 0), str, "(fault)"}, {Source{Base: Immediate, N: 0x2000}, str, `"test"`},
		{Source{Base: Comm}, str, `"server"`}, {Source{Base: Text, Name: "as it is"}, str, `"as it is"`},
		// other bases
		{Source{Base: Stack}, x64, "0x7000"}, {Source{Base: StackWord, N: 1}, u64, "7"}, {Source{Base: StackWord, N: 2}, u8, "8"},
		{from(Source{Base: Stack}, 0), x64, "0x401234"}, {from(Source{Base: StackWord, N: 3}, 0), str, `"test"`}, {Source{Base: StackWord, N: 900}, u8, "0"},
		{Source{Base: Argument, N: 1}, x64, "0x1000"}, {Source{Base: Argument, N: 6}, u64, "6"}, {Source{Base: Argument, N: 7}, u64, "7"}, {Source{Base: Argument, N: 8}, u64, "8"},
		{from(Source{Base: Argument, N: 9}, 0), str, `"test"`}, {Source{Base: Retval}, s32, "21"},
		{Source{Base: Memory, N: 0x1000}, x64, "0x2000"}, {from(Source{Base: Memory, N: 0x1000}, 0), str, `"test"`}, {Source{Base: Memory, N: 0x2000}, str, `"test"`},
		{Source{Base: Symbol, Name: "global", Off: 8}, x32, "0x76543210"}, {Source{Base: Symbol, Name: "global", Off: -8}, x32, "0x0"},
		{from(Source{Base: Symbol, Name: "global"}, 7), str, `"world"`}, {Source{Base: FileOffset, N: 8}, x8, "0x10"},
		{Source{Base: Immediate, N: -1}, s8, "-1"}, {Source{Base: Immediate, N: -1}, u8, "255"}, {Source{Base: Immediate, N: 1 << 40}, u64, "1099511627776"},
		// arrays
		{reg("rdi", 0, 0), array(char, 4), "{'t','e','s','t'}"}, {reg("rdi", 8), array(x16, 4), "{0x3210,0x7654,0xba98,0xfedc}"},
		{reg("rdi", 8), array(s8, 3), "{16,50,84}"}, {reg("rdi", 8), array(bits(4, 4, 1), 3), "{1,3,5}"}, {reg("rdi", 0), array(u64, 2), "{8192,18364758544493064720}"},
		{reg("rdi", 32), array(str, 4), `{"test","world",(fault),"test"}`}, {reg("rdx", 0), array(str, 2), "{(fault),(fault)}"},
		{reg("rdx", 0), array(u8, 2), "{0,0}"}, {Source{Base: Memory, N: 0x5ffc}, array(u8, 8), "{5,6,7,8,0,0,0,0}"},
		{reg("rdi", 16), array(symbol, 2), "{global+0x0/0x40,0x10}"}, {reg("rdi", 16), array(symstr, 2), `{"global+0x0/0x40","0x10"}`},
	} {
		a := Arg{Name: "a", Source: c.source, Type: c.typ}
		if got, want := printed(t, []Arg{a}, testEnv, testRegs, testMem, nil), "a="+c.want; got != want {
			t.Errorf("%+v: %s, want %s", a, got, want)
		}
	}
}

// printed is all args at a hit.
func printed(t *testing.T, args []Arg, env Env, r regs, m memory, saved []uint64) string {
	t.Helper()
	l, err := NewLayout(args, env)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := l.Run(r, m, saved)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	values := l.Decode(payload, testHost)
	for i, a := range args {
		all = append(all, a.Format(values[i]))
	}
	return strings.Join(all, " ")
}

func TestSeveralArguments(t *testing.T) {
	args := []Arg{
		{Name: "text", Source: reg("rdi", 0, 0), Type: str}, {Name: "comm", Source: Source{Base: Comm}, Type: str},
		{Name: "n", Source: reg("rdi"), Type: x64}, {Name: "bad", Source: reg("rdx", 0), Type: u64},
		{Name: "list", Source: reg("rdi", 32), Type: array(str, 2)}, {Name: "last", Source: reg("rsi"), Type: s8},
	}
	want := `text="test" comm="server" n=0x1000 bad=0 list={"test","world"} last=-123`
	for range 3 {
		if got := printed(t, args, testEnv, testRegs, testMem, nil); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestArgumentsOfTheEntryAtTheReturn(t *testing.T) {
	env := testEnv
	env.Return = true
	args := []Arg{
		{Name: "a", Source: from(Source{Base: Argument, N: 1}, 0, 0), Type: str}, {Name: "b", Source: Source{Base: Argument, N: 7}, Type: u64},
		{Name: "c", Source: Source{Base: Argument, N: 1}, Type: x64}, {Name: "d", Source: Source{Base: Argument, N: 300}, Type: x64},
		{Name: "r", Source: Source{Base: Retval}, Type: s64},
	}
	l, err := NewLayout(args, env)
	if err != nil {
		t.Fatal(err)
	}
	saved := l.Save(testRegs, testMem)
	if got := fmt.Sprint(saved); got != "[4096 7 0]" || l.Saved() != 3 {
		t.Errorf("saved %s of %d", got, l.Saved())
	}
	after := regs{"rax": ^uint64(1), "rdi": 9, "rsp": 0x7008}
	if got, want := printed(t, args, env, after, testMem, saved), `a="test" b=7 c=0x1000 d=0x0 r=-2`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := printed(t, args, env, after, testMem, nil), `a=(fault) b=0 c=0x0 d=0x0 r=-2`; got != want {
		t.Errorf("nothing saved: got %s, want %s", got, want)
	}
}

func TestWhatCanNotBeRecorded(t *testing.T) {
	many := make([]Arg, 128)
	for i := range many {
		many[i] = Arg{Name: "a", Source: reg("rdi", 0), Type: array(str, 64)}
	}
	for _, c := range []struct {
		args []Arg
		want error
		text string
	}{
		{[]Arg{{Name: "x", Source: Source{Base: Symbol, Name: "nowhere"}, Type: u64}}, syscall.ENOENT, "argument x: there is no symbol nowhere: no such file or directory"},
		{[]Arg{{Name: "x", Source: Source{Base: FileOffset, N: 0x1000}, Type: u64}}, syscall.ENOENT, "argument x: the file is not mapped at offset 0x1000: no such file or directory"},
		{[]Arg{{Name: "x", Source: Source{Base: Argument}, Type: u64}}, syscall.EINVAL, ""},
		{[]Arg{{Name: "x", Source: Source{Base: 99}, Type: u64}}, syscall.EINVAL, ""},
		{many, syscall.E2BIG, ""},
	} {
		l, err := NewLayout(c.args, testEnv)
		if !errors.Is(err, c.want) || c.text != "" && err.Error() != c.text {
			t.Errorf("%v, %v", l, err)
		}
	}
	if _, err := NewLayout([]Arg{{Source: Source{Base: Symbol, Name: "global"}}}, Env{ABI: host.C}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("without symbols: %v", err)
	}
	l, err := NewLayout([]Arg{{Name: "x", Source: reg("rbx"), Type: u64}}, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := l.Run(testRegs, testMem, nil); err == nil {
		t.Errorf("a register that is not there: %v", p)
	}
	if v := l.Decode(make([]byte, 8), testHost); v != nil {
		t.Errorf("a short record: %v", v)
	}
}

// As many arguments as the kernel allows.
func TestManyArguments(t *testing.T) {
	for _, typ := range []Type{str, x64, array(u8, 32)} {
		args := make([]Arg, 128)
		for i := range args {
			args[i] = Arg{Name: fmt.Sprint("a", i), Source: reg("rdi", 0, 7), Type: typ}
		}
		l, err := NewLayout(args, testEnv)
		if err != nil {
			t.Fatal(err)
		}
		if l.size > program.MaxRecord {
			t.Errorf("%d bytes", l.size)
		}
		payload, err := l.Run(testRegs, testMem, nil)
		if err != nil {
			t.Fatal(err)
		}
		values := l.Decode(payload, testHost)
		for _, v := range values {
			if v.Fault || typ.Kind == String && v.S != "world" {
				t.Fatalf("%s: %v", typ.Name, v)
			}
		}
	}
}

func TestLongStringsAreCut(t *testing.T) {
	m := memory{0x3000: []byte(strings.Repeat("x", 3000))}
	a := Arg{Name: "a", Source: reg("rdi", 0), Type: str}
	want := `a="` + strings.Repeat("x", StringSize-1) + `"`
	if got := printed(t, []Arg{a}, testEnv, regs{"rdi": 0x3000}, m, nil); got != want {
		t.Errorf("got %s", got)
	}
}

// The ring lies in the target's memory: anything may stand there.
func FuzzDecode(f *testing.F) {
	args := []Arg{
		{Name: "s", Source: reg("rdi", 0), Type: str}, {Name: "l", Source: reg("rdi", 0), Type: array(str, 3)}, {Name: "a", Source: reg("rdi", 0), Type: array(u16, 5)},
		{Name: "n", Source: reg("rdi", 0), Type: s32}, {Name: "b", Source: reg("rdi"), Type: bits(3, 5, 2)}, {Name: "y", Source: reg("rdi", 0), Type: array(symstr, 2)},
	}
	l, err := NewLayout(args, testEnv)
	if err != nil {
		f.Fatal(err)
	}
	payload, err := l.Run(testRegs, testMem, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		values := l.Decode(payload, testHost)
		if (values == nil) != (len(payload) < l.size) {
			t.Errorf("%d bytes: %v", len(payload), values)
		}
		for i, v := range values {
			_ = args[i].Format(v)
		}
	})
}

func TestALayoutIsUsedConcurrently(t *testing.T) {
	args := []Arg{{Name: "s", Source: reg("rdi", 0, 0), Type: str}, {Name: "n", Source: reg("rsi"), Type: s32}}
	l, err := NewLayout(args, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := regs{"rdi": 0x1000, "rsi": uint64(i), "rsp": 0x7000}
			for range 200 {
				payload, err := l.Run(r, testMem, nil)
				if v := l.Decode(payload, testHost); err != nil || v[0].S != "test" || v[1].U != uint64(i) {
					t.Errorf("%v, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}

// Strings with a length, as those of Go: in registers, in memory, saved at the entry.
func TestCountedStrings(t *testing.T) {
	counted := func(at Source, n Source) Arg {
		at.Len = &n
		return Arg{Name: "a", Source: at, Type: str}
	}
	m := memory{
		0x1000: words(0x2000, 4, 0x2007, 5, 0, 0, 0x10, 3, 0x2000, 1<<40),
		0x2000: append([]byte("test\x00xyworld\x00"), make([]byte, 4096)...),
		0x7000: words(0, 0x2000, 2),
	}
	for _, c := range []struct {
		arg  Arg
		want string
	}{
		{counted(reg("rax", 0), reg("rbx")), `"test"`},
		{counted(reg("rax", 7), reg("rbx")), `"worl"`},
		{counted(reg("rdi", 0, 0), reg("rdi", 8)), `"test"`},
		{counted(reg("rdi", 16, 0), reg("rdi", 24)), `"world"`},
		{counted(reg("rdi", 32, 0), reg("rdi", 40)), `""`},
		{counted(reg("rdi", 48, 0), reg("rdi", 56)), "(fault)"},
		{counted(reg("rsi", 0, 0), reg("rsi", 8)), "(fault)"},
		{counted(reg("rax", 3), Source{Base: Immediate, N: 6}), "\"t\x00xywo\""},
		{counted(from(Source{Base: Argument, N: 7}, 0), Source{Base: Argument, N: 8}), `"te"`},
	} {
		r := regs{"rax": 0x2000, "rbx": 4, "rdi": 0x1000, "rsi": 8, "rsp": 0x7000}
		if got, want := printed(t, []Arg{c.arg}, testEnv, r, m, nil), "a="+c.want; got != want {
			t.Errorf("%+v: %q, want %q", c.arg.Source, got, want)
		}
	}
	long := counted(reg("rdi", 64, 0), reg("rdi", 72))
	got := printed(t, []Arg{long}, testEnv, regs{"rdi": 0x1000}, m, nil)
	if want := `a="` + string(m[0x2000][:StringSize]) + `"`; got != want {
		t.Errorf("a long one is %q", got)
	}
	env := testEnv
	env.Return = true
	both := counted(from(Source{Base: Argument, N: 1}, 0), Source{Base: Argument, N: 2})
	l, err := NewLayout([]Arg{both}, env)
	if err != nil {
		t.Fatal(err)
	}
	saved := l.Save(regs{"rdi": 0x2007, "rsi": 3}, m)
	if got, want := printed(t, []Arg{both}, env, regs{"rdi": 1, "rsi": 1}, m, saved), `a="wor"`; got != want {
		t.Errorf("at the return %s, want %s", got, want)
	}
}

// A record has room for as much of a text as somebody has asked for, or that is an error.
func TestStringsAreAsLongAsTheyAreAskedFor(t *testing.T) {
	m := memory{0x3000: []byte(strings.Repeat("x", 3000))}
	a := Arg{Name: "a", Source: reg("rdi", 0), Type: str}
	for _, n := range []int{1000, 1001, 1007, 2999} {
		env := testEnv
		env.Text = n
		if got := printed(t, []Arg{a}, env, regs{"rdi": 0x3000}, m, nil); len(got) < n+len(`a=""`) {
			t.Errorf("of %d bytes there are %d", n, len(got)-len(`a=""`))
		}
	}
	env := testEnv
	env.Text = 4096
	if _, err := NewLayout([]Arg{a, a}, env); !errors.Is(err, syscall.E2BIG) || !strings.Contains(err.Error(), "ask for shorter ones") {
		t.Errorf("two of 4096 bytes: %v", err)
	}
}

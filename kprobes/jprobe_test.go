package kprobes_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// flat prints a value as the fixture does its arguments.
func flat(v reflect.Value) string {
	var b strings.Builder
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return " 1"
		}
		return " 0"
	case reflect.Float32:
		return fmt.Sprintf(" %08x", math.Float32bits(float32(v.Float())))
	case reflect.Float64:
		return fmt.Sprintf(" %016x", math.Float64bits(v.Float()))
	case reflect.Complex64:
		return fmt.Sprintf(" %08x %08x", math.Float32bits(float32(real(v.Complex()))), math.Float32bits(float32(imag(v.Complex()))))
	case reflect.Complex128:
		return fmt.Sprintf(" %016x %016x", math.Float64bits(real(v.Complex())), math.Float64bits(imag(v.Complex())))
	case reflect.String:
		return " " + v.String()
	case reflect.Struct:
		for i := range v.NumField() {
			b.WriteString(flat(v.Field(i)))
		}
	case reflect.Array:
		for i := range v.Len() {
			b.WriteString(flat(v.Index(i)))
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf(" %d", v.Int())
	default:
		return fmt.Sprintf(" %d", v.Uint())
	}
	return b.String()
}

// recorder is a Jprobe with an Entry of type t that notes its arguments, flat, in said.
func recorder(symbol string, t reflect.Type, said *[]string) *kprobes.Jprobe {
	f := reflect.MakeFunc(t, func(args []reflect.Value) []reflect.Value {
		line := "got " + symbol
		for _, a := range args {
			line += flat(a)
		}
		*said = append(*said, line)
		return nil
	})
	return &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: symbol}, Entry: f.Interface()}
}

type (
	jMixed struct {
		I int32
		D float64
	}
	jFloat3 struct{ a, b, c float32 }
	jLarge  struct {
		A int
		B int32
		C float64
	}
	jArray struct {
		S [3]int16
		C int8
	}
	jFive   struct{ C [5]int8 }
	jTwo    struct{ A, B int64 }
	jNested struct {
		M    [2][3]int8
		F    [2]float32
		Text string
	}
	jDeep struct {
		N    jNested
		Last bool
	}
	jWide   struct{ A, B, C int64 }
	jPacked struct {
		C int8
		I int32
	}
)

// jprobeCalls are the fixture's functions and what their arguments are read as; those that
// need debug information have it said.
var jprobeCalls = []struct {
	fn        string
	as        any
	described bool
}{
	{"none", func() {}, false},
	{"small", func(int8, uint8, int16, uint16, int32, uint32, int64, bool, bool) {}, false},
	{"twenty", func(int32, float64, int, float64, int32, float64, int, float64, int32, float64,
		int, float64, int32, float64, int64, float64, int32, float64, int, float64) {
	}, false},
	{"floats", func(a, b, c, d, e, f, g, h, i, j float32) {}, false},
	{"structs", func(jMixed, jFloat3, jLarge, jArray, jFive) {}, false},
	{"spilled", func(a, b, c, d, e int, t jTwo, f jMixed, g jLarge, h int, i jFloat3) {}, false},
	{"nests", func(jDeep, int32) {}, false},
	{"complexes", func(complex64, complex128) {}, false},
	{"variadic", func(int32, float64) {}, false},
	{"returns", func(int32, string) {}, true},
	{"strange", func([16]byte, [16]byte, [4]byte, int32, jPacked, int32) {}, true},
	{"aligned", func(int32, jWide, int32, jWide) {}, true},
}

// TestJprobesGetTheArguments (A8) as the program itself has them.
func TestJprobesGetTheArguments(t *testing.T) {
	for _, info := range []string{"-g", "-g0"} {
		t.Run(info, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "jprobe", info))
			s := attach(t, prog.PID(), kprobes.Options{})
			var said []string
			var jps []*kprobes.Jprobe
			var want []string
			for _, c := range jprobeCalls {
				if c.described && info == "-g0" {
					continue
				}
				jps = append(jps, recorder(c.fn, reflect.TypeOf(c.as), &said))
				want = append(want, "call "+c.fn)
			}
			if err := s.RegisterJprobes(jps); err != nil {
				t.Fatal(err)
			}
			for i, command := range want {
				want[i] = prog.Do(command, "got")
			}
			for i := range want {
				if got := at(said, i); got != asFlat(want[i]) {
					t.Errorf("the arguments are\n %s, the program has\n %s", got, want[i])
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "missing"
}

// asFlat is the fixture's line with what it prints otherwise: a bit field's storage as one
// number, and of a long double only the bytes that count.
func asFlat(line string) string {
	rest, ok := strings.CutPrefix(line, "got strange ")
	if !ok {
		return line
	}
	words := strings.Fields(rest)
	var raw uint32
	fmt.Sscan(words[26], &raw)
	out := append([]string{}, words[:10]...)
	out = append(out, "0", "0", "0", "0", "0", "0")
	out = append(out, words[10:26]...)
	for i := range 4 {
		out = append(out, fmt.Sprint(raw>>(8*i)&0xff))
	}
	return "got strange " + strings.Join(append(out, words[27:]...), " ")
}

// TestJprobesReadStrings: NULL is "", and what can't be read is cut; the FaultHandler is
// asked before.
func TestJprobesReadStrings(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	var got []string
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "texts"}, Entry: func(regs *kprobes.Regs, a, b, c string, d kprobes.Ptr) {
		text, err := regs.ReadString(0, 10)
		got = append(got, a, b, c, d.String(), text, fmt.Sprint(err != nil))
	}}
	asked := 0
	jp.KP.FaultHandler = func(_ *kprobes.Kprobe, _ *kprobes.Regs, trapnr int) int {
		asked++
		if trapnr != 14 {
			t.Errorf("the trap is %d", trapnr)
		}
		return 0
	}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	prog.Do("call texts", "got")
	want := []string{"a text", "", "", "0xffffffffffffffff", "", "true"}
	if !reflect.DeepEqual(got, want) || asked != 2 || jp.KP.NMissed() != 2 {
		t.Errorf("got %q, %d questions, %d misses; want %q, 2, 2", got, asked, jp.KP.NMissed(), want)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

const sumIs = "ret 8987654321"

// sumProbe is a Jprobe on the fixture's function with stack arguments.
func sumProbe(body func(regs *kprobes.Regs, j int)) *kprobes.Jprobe {
	return &kprobes.Jprobe{
		KP:    kprobes.Kprobe{SymbolName: "sum"},
		Entry: func(regs *kprobes.Regs, a, b, c, d, e, f, g, h, i, j int) { body(regs, j) },
	}
}

// TestJprobesLeaveNoTrace (B38, B41): registers and the first 64 bytes of the stack are put
// back, what lies behind is not, however the body ends.
func TestJprobesLeaveNoTrace(t *testing.T) {
	const slots = 12
	for name, end := range map[string]func(s *kprobes.Session){
		"returns":      func(*kprobes.Session) {},
		"JprobeReturn": func(*kprobes.Session) { kprobes.JprobeReturn() },
		"panics":       func(*kprobes.Session) { panic("of the test") },
		"closes":       func(s *kprobes.Session) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			prog := start(t, "jprobe")
			s := attach(t, prog.PID(), kprobes.Options{Log: func(string) {}})
			var before, after [slots]uint64
			var sp kprobes.Ptr
			look := func(regs *kprobes.Regs, words *[slots]uint64) {
				for i := range words {
					words[i], _ = regs.ReadUint64(sp + kprobes.Ptr(8*i))
				}
			}
			jp := sumProbe(func(regs *kprobes.Regs, _ int) {
				sp = regs.SP()
				look(regs, &before)
				// Over the return address and the arguments, in pieces that overlap.
				for _, off := range []int64{0, 4, 20, 36, 44, 56} {
					if err := regs.WriteMemory(sp.Add(off), []byte("overwritten!")); err != nil {
						t.Error(err)
					}
				}
				for _, reg := range regs.Names() {
					if !strings.HasSuffix(reg, "s") && !strings.HasSuffix(reg, "_base") {
						regs.Set(reg, 0x4141)
					}
				}
				end(s)
			})
			if err := s.RegisterJprobe(jp); err != nil {
				t.Fatal(err)
			}
			// A PostHandler behind the first instruction sees the stack first.
			jp2 := &kprobes.Kprobe{SymbolName: "sum", PostHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) { look(regs, &after) }}
			register(t, s, jp2)
			if got := prog.Do("sum", "ret"); got != sumIs {
				t.Errorf("got %q, want %q", got, sumIs)
			}
			if name != "closes" {
				for i := range before {
					if same := before[i] == after[i]; same != (i != 8) {
						t.Errorf("word %d of the stack was %#x and is %#x", i, before[i], after[i])
					}
				}
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestJprobeReturnEndsTheBody (B39, B42) from a function that it calls, and nothing else.
func TestJprobeReturnEndsTheBody(t *testing.T) {
	prog := start(t, "jprobe")
	var log []string
	s := attach(t, prog.PID(), kprobes.Options{Log: func(m string) { log = append(log, m) }})
	got := 0
	jp := sumProbe(func(_ *kprobes.Regs, j int) {
		defer func() { got++ }()
		func() {
			got += j
			kprobes.JprobeReturn()
		}()
		got += 1000
	})
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		prog.Do("sum", "ret")
	}
	if got != 3*9 || jp.KP.Hits() != 3 || len(log) > 0 {
		t.Errorf("got %d, %d hits, log %q; want 27, 3, none", got, jp.KP.Hits(), log)
	}
	// Outside of a body it is a panic.
	kp := &kprobes.Kprobe{SymbolName: "sum", PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int {
		kprobes.JprobeReturn()
		return 0
	}}
	register(t, s, kp)
	prog.Do("sum", "ret")
	if len(log) != 1 || !strings.Contains(log[0], "outside of a Jprobe's Entry") || kp.Flags&kprobes.FlagDisabled == 0 {
		t.Errorf("log %q, flags %d", log, kp.Flags)
	}
	wantRight(t, prog)
}

// TestJprobesRunLast (B17, B19, B41): behind all Kprobes, whose changes of registers they
// see and which may keep them from running.
func TestJprobesRunLast(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	var order string
	answer := 0
	probe := func(name string, f func(regs *kprobes.Regs) int) *kprobes.Kprobe {
		return &kprobes.Kprobe{SymbolName: "sum", PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
			order += name
			return f(regs)
		}}
	}
	register(t, s, probe("a", func(*kprobes.Regs) int { return 0 }))
	jp := sumProbe(func(regs *kprobes.Regs, j int) {
		v, _ := regs.Arg(0)
		order += fmt.Sprintf("j%d.%d", v, j)
		regs.SetArg(0, 7)
	})
	post := ""
	jp.KP.PostHandler = func(_ *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) {
		v, _ := regs.Arg(0)
		post += fmt.Sprintf("p%d", v)
	}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	register(t, s, probe("b", func(regs *kprobes.Regs) int {
		regs.SetArg(0, 2)
		if answer != 0 { // as if sum had returned 5
			regs.SetReturnValue(5)
			back, _ := regs.ReadUint64(regs.SP())
			regs.SetIP(kprobes.Ptr(back))
			regs.SetSP(regs.SP() + 8)
		}
		return answer
	}))
	if got := prog.Do("sum", "ret"); got != "ret 8987654322" || order != "baj2.8" || post != "p2" {
		t.Errorf("got %q, handlers %q, %q", got, order, post)
	}
	answer = 1
	if got := prog.Do("sum", "ret"); got != "ret 5" || order != "baj2.8b" || post != "p2" {
		t.Errorf("got %q, handlers %q, %q", got, order, post)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesAreRefused (A61 to A64).
func TestJprobesAreRefused(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	sum := func(a, b, c, d, e, f, g, h, i, j int) {}
	body := symbol(t, s, "sum") + 1
	for boundary := false; !boundary; body++ {
		kp := &kprobes.Kprobe{Addr: body}
		boundary = s.RegisterKprobe(kp) == nil
		_ = s.UnregisterKprobe(kp)
	}
	body--
	var none func()
	for _, c := range []struct {
		why   string
		at    string
		addr  kprobes.Ptr
		entry any
		want  error
		errno unix.Errno
		says  string
	}{
		{"no Entry", "sum", 0, nil, kprobes.ErrEntryType, unix.EINVAL, "it is <nil>"},
		{"a nil Entry", "none", 0, none, kprobes.ErrEntryType, unix.EINVAL, "it is func()"},
		{"no func", "sum", 0, 1, kprobes.ErrEntryType, unix.EINVAL, "it is int"},
		{"a result", "none", 0, func() int { return 0 }, kprobes.ErrEntryType, unix.EINVAL, "it is func() int"},
		{"too few", "sum", 0, func(int) {}, kprobes.ErrEntryType, unix.EINVAL, "sum(long int a, long int b,"},
		{"another size", "small", 0, func(int16, uint8, int16, uint16, int32, uint32, int64, bool, bool) {},
			kprobes.ErrEntryType, unix.EINVAL, "parameter 1: signed char has 1 bytes and can't be read as int16"},
		{"Regs not first", "variadic", 0, func(int32, *kprobes.Regs) {}, kprobes.ErrEntryType, unix.EINVAL, "parameter 2"},
		{"not an entry", "", body, sum, kprobes.ErrNotEntry, unix.EINVAL, "not the entry"},
		{"unknown symbol", "no_such", 0, sum, kprobes.ErrUnknownSymbol, unix.ENOENT, "no_such"},
		{"no place", "", 0, sum, kprobes.ErrNoAddrOrSymbol, unix.EINVAL, "neither"},
		{"both", "sum", 1, sum, kprobes.ErrBothAddrAndSymbol, unix.EINVAL, "both"},
		{"unmapped", "", 4096, sum, kprobes.ErrNotMapped, unix.EINVAL, "no mapping"},
	} {
		jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: c.at, Addr: c.addr}, Entry: c.entry}
		err := s.RegisterJprobe(jp)
		if !errors.Is(err, c.want) || !errors.Is(err, c.errno) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: error %v, want %v with %q", c.why, err, c.want, c.says)
		}
	}
	if err := s.RegisterJprobes(nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("none: error %v, want EINVAL", err)
	}
}

// TestOneJprobeAtAnAddress (A63), also within a batch, of which then nothing is left (A45).
func TestOneJprobeAtAnAddress(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	counter := func() *kprobes.Jprobe { return sumProbe(func(*kprobes.Regs, int) {}) }
	first := counter()
	var said []string
	other := recorder("none", reflect.TypeFor[func()](), &said)
	if err := s.RegisterJprobes([]*kprobes.Jprobe{other, first, counter()}); !errors.Is(err, kprobes.ErrJprobeExists) {
		t.Errorf("a batch with two at an address: error %v", err)
	}
	prog.Do("call none", "got")
	if prog.Do("sum", "ret"); len(said) > 0 || first.KP.Hits() > 0 {
		t.Errorf("probes of a refused batch are hit: %q, %d", said, first.KP.Hits())
	}
	first.KP.Addr, first.KP.Flags = 0, 0 // as after any unregistration (A39)
	if err := s.RegisterJprobe(first); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterJprobe(first); !errors.Is(err, kprobes.ErrRegistered) {
		t.Errorf("registered twice: error %v", err)
	}
	second := counter()
	if err := s.RegisterJprobe(second); !errors.Is(err, kprobes.ErrJprobeExists) || !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second at the address: error %v", err)
	}
	prog.Do("sum", "ret")
	if err := s.UnregisterJprobe(first); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterJprobe(second); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
	prog.Do("sum", "ret")
	if first.KP.Hits() != 1 || second.KP.Hits() != 1 {
		t.Errorf("hits %d and %d, want 1 and 1", first.KP.Hits(), second.KP.Hits())
	}
	if err := s.UnregisterJprobes([]*kprobes.Jprobe{second, counter()}); err != nil {
		t.Error(err)
	}
	prog.Do("sum", "ret")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesAreEnabledAndDisabled (B45), and registered disabled.
func TestJprobesAreEnabledAndDisabled(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{})
	ran := 0
	jp := sumProbe(func(*kprobes.Regs, int) { ran++ })
	jp.KP.Flags = kprobes.FlagDisabled
	step := func(name string, err error, want int) {
		t.Helper()
		if prog.Do("sum", "ret"); err != nil || ran != want {
			t.Errorf("%s: error %v, %d runs, want %d", name, err, ran, want)
		}
	}
	if err := s.EnableJprobe(jp); !errors.Is(err, unix.EINVAL) {
		t.Errorf("enabled before registration: %v", err)
	}
	step("registered disabled", s.RegisterJprobe(jp), 0)
	step("enabled", s.EnableJprobe(jp), 1)
	step("enabled again", s.EnableJprobe(jp), 2)
	step("disabled", s.DisableJprobe(jp), 2)
	step("enabled", s.EnableJprobe(jp), 3)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesInThreadsAndChildren: every call is a hit, in a followed child too.
func TestJprobesInThreadsAndChildren(t *testing.T) {
	prog := start(t, "jprobe")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	n, bad, pids := 0, 0, map[int]int{}
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "sum"}}
	jp.Entry = func(regs *kprobes.Regs, a, b, c, d, e, f, g, h, i, j int) {
		n++
		pids[regs.PID()]++
		if [10]int{a, b, c, d, e, f, g, h, i, j} != [10]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 8} {
			bad++
		}
		for k := range 8 { // another's registers and stack would be disturbed by now
			_ = regs.WriteUint64(regs.SP()+kprobes.Ptr(8*k), 0)
		}
		regs.SetArg(1, 0)
	}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	prog.Do("busy 500", "did 500")
	if got := prog.Do("fork", "status"); got != "status 0" || n != 2001 || bad != 0 || len(pids) != 2 || jp.KP.Hits() != 2001 {
		t.Errorf("%s, %d runs, %d wrong, %d processes; want status 0, 2001, 0, 2", got, n, bad, len(pids))
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

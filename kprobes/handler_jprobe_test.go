package kprobes_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// flat prints a value as the fixture does its arguments.
func flat(v reflect.Value) string {
	var b strings.Builder
	switch x := v.Interface().(type) {
	case jLongDouble: // the rest is padding
		return flat(reflect.ValueOf([10]byte(x[:10])))
	case jBits:
		return fmt.Sprintf(" %d", binary.LittleEndian.Uint32(x[:]))
	}
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
	jFloat3 struct{ A, B, C float32 }
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
	jTight struct {
		C int8
		I [16]byte
	}
	jWide       struct{ A, B, C int64 }
	jLongDouble [16]byte
	jBits       [4]byte
	jPacked     struct {
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
	{"strange", func(jLongDouble, [16]byte, jBits, int32, jPacked, int32) {}, true},
	{"aligned", func(int32, jLarge, jWide, int32, jLarge, jTight) {}, true},
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
			if err := s.RegisterJprobes(t.Context(), jps); err != nil {
				t.Fatal(err)
			}
			for i, command := range want {
				want[i] = prog.Do(command, "got")
			}
			for i := range want {
				if got := at(said, i); got != want[i] {
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

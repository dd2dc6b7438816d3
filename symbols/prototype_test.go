package symbols

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
)

// typesOf are the parameter types of a func.
func typesOf(f any) []reflect.Type {
	var out []reflect.Type
	for i := range reflect.TypeOf(f).NumIn() {
		out = append(out, reflect.TypeOf(f).In(i))
	}
	return out
}

// read is the arguments of the function at r's IP as f's parameter types have them.
func read(t *testing.T, x *tracee, r arch.Regs, f any) string {
	t.Helper()
	p, err := x.tab.Prototype(r.IP(), typesOf(f))
	if err != nil {
		t.Fatal(err)
	}
	args, err := p.Arguments(r, x.mem)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range args {
		s := fmt.Sprintf("%v", a)
		if a.Kind() == reflect.String {
			s = fmt.Sprintf("%q", a)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

type typedCall struct {
	fn   string
	as   any
	want string
}

type (
	cPoint struct{ X, Y int32 }
	cPair  struct{ A, B float64 }
	cMixed struct {
		N int64
		D float64
	}
	cBig    struct{ A, B, C int64 }
	cPacked struct {
		F float32
		I int32
	}
	cNamed struct{ Name [8]byte }
)

// typedC does without debug information.
var typedC = []typedCall{
	{"scalars", func(int32, uint8, int16, int64, bool, int8, uint64) {}, `-42 200 -3 1099511627776 true 65 99`},
	{"pointers", func(string, arch.Addr, uintptr, uint64, string) {}, `"say \"hi\"\n" 0x1234 * 16 ""`},
	{"enums", func(uint32, int32, int32) {}, `5 -1 77`},
	{"structs", func(cPoint, cPair, cMixed, cPacked) {}, `{1 2} {3.5 4.5} {5 6.5} {7.5 8}`},
	{"memory", func(cBig, int32, cNamed, int32) {}, `{1 2 3} 9 {[97 98 99 0 0 0 0 0]} 12`},
	{"many", func(int32, int32, int32, int32, int32, int32, int32, byte, float64) {}, `1 2 3 4 5 6 7 104 8.5`},
	{"split", func(int, int, int, int, int, cMixed, cPair, cPoint, int32) {}, `1 2 3 4 5 {6 7.5} {8.5 9.5} {10 11} 12`},
	{"cplx", func(complex64, complex128) {}, `(1+2i) (3+4i)`},
	{"nine", func(a, b, c, d, e, f, g, h float64, i float32, j int32) {}, `1 2 3 4 5 6 7 8 9.5 10`},
}

// describedC needs it: for what Go has no types, for unions, for hidden pointers.
var describedC = []typedCall{
	{"floats", func(float32, float64, int32, [16]byte, float64) {}, `1.5 -2.25 3 [0 0 0 0 0 0 0 144 1 64 * 5.5`},
	{"memory", func([24]byte, uint32, cNamed, float32) {}, `[1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0 3 0 0 0 0 0 0 0] 9 {[97 98 99 0 0 0 0 0]} 1.7e-44`},
	{"returns_big", func(int32) {}, `11`},
	{"wide", func([16]byte, int32) {}, `[2 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0] 3`},
}

var typedCPP = []typedCall{
	{"ns::Counter::add", func(this arch.Addr, by int32, why arch.Addr) {}, `0x* 5 0x*`},
	{"ns::refs", func(r arch.Addr, d struct {
		base  struct{ id int32 }
		extra int32
	}, o struct{ v int32 }, last int32) {
	}, `0x* {{3} 4} {6} 7`},
}

var typedGo = []typedCall{
	{"main.Scalars", func(int, uint8, bool, float64, float32, rune, uint64) {}, `-1 200 true 2.5 1.25 120 9`},
	{"main.Many", func(a, b, c, d, e, f, g, h, i, j int, s string) {}, `1 2 3 4 5 6 7 8 9 10 "eleven"`},
	{"main.(*Point).Move", func(arch.Addr, int, int) {}, `0x* 3 4`},
}

func TestArgumentsAreReadAsGoTypes(t *testing.T) {
	for _, c := range []struct {
		name, src string
		flags     []string
		calls     []typedCall
	}{
		{"C", "params.c", []string{"-g"}, append(describedC, typedC...)},
		{"C without debug information", "params.c", []string{"-g0"}, typedC},
		{"C++", "params.cc", []string{"-g", "-O1", "-std=c++17"}, typedCPP},
		{"Go", "params.go", nil, typedGo},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, call := range c.calls {
				x := trace(t, build(t, c.src, c.flags...), call.fn)
				got := read(t, x, x.vectorRegs(), call.as)
				if !regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(call.want), `\*`, `.*`) + `$`).MatchString(got) {
					t.Errorf("%s\n got %s\nwant %s", call.fn, got, call.want)
				}
			}
		})
	}
}

func TestTypesThatDoNotFitAreRefused(t *testing.T) {
	described := trace(t, build(t, "params.c", "-g"), "main")
	for _, c := range []struct {
		fn   string
		as   any
		want string
	}{
		{"scalars", func(int32) {}, "the number of its parameters is 7, not 1"},
		{"scalars", func(int64, uint8, int16, int64, bool, byte, uint64) {}, "scalars(int i, unsigned char u, short int s, long long int l, _Bool b, char c, size_t z): parameter 1: int has 4 bytes and can't be read as int64"},
		{"scalars", func(int32, bool, int16, int64, bool, byte, uint64) {}, "parameter 2: unsigned char can't be read as bool"},
		{"floats", func(float64, float64, int32, [16]byte, float64) {}, "parameter 1: float has 4 bytes and can't be read as float64"},
		{"floats", func(uint32, float64, int32, [16]byte, float64) {}, "parameter 1: float can't be read as uint32"},
		{"floats", func(float32, float64, float32, [16]byte, float64) {}, "parameter 3: int can't be read as float32"},
		{"floats", func(float32, float64, int32, float64, float64) {}, "parameter 4: long double has 16 bytes"},
		{"pointers", func(string, string, uintptr, uint64, string) {}, "parameter 2: void * can't be read as string"},
		{"pointers", func(string, uint32, uintptr, uint64, string) {}, "parameter 2: void * has 8 bytes"},
		{"pointers", func(string, *int32, uintptr, uint64, string) {}, "*int32 would be an address of this process: take an arch.Addr"},
		{"structs", func(cMixed, cPair, cMixed, cPacked) {}, "parameter 1: point.x: int has 4 bytes and can't be read as int64"},
		{"structs", func(uint64, cPair, cMixed, cPacked) {}, "parameter 1: point can't be read as uint64"},
		{"structs", func(cBig, cPair, cMixed, cPacked) {}, "point has 2 fields, symbols.cBig has 3"},
		{"memory", func(cBig, int32, struct{ a [7]byte }, int32) {}, "parameter 3: named.name: char[] has 8 bytes and can't be read as [7]uint8"},
		{"memory", func(cBig, int32, cNamed, int64) {}, "parameter 4: either has 4 bytes"},
		{"wide", func(struct{ lo, hi uint64 }, int32) {}, "parameter 1: __int128 can't be read as"},
	} {
		_, err := described.tab.Prototype(one(t, described.tab, c.fn).Addr, typesOf(c.as))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %T: error %v, want %q", c.fn, c.as, err, c.want)
		}
	}
	for _, c := range []struct {
		as   any
		want string
	}{
		{func(int, chan int) {}, "parameter 2: chan int is no type of C's"},
		{func(map[string]int) {}, "is no type of C's"},
		{func([]byte) {}, "is no type of C's"},
		{func(func()) {}, "is no type of C's"},
		{func(error) {}, "is no type of C's"},
		{func(*int) {}, "would be an address of this process"},
		{func(unsafe.Pointer) {}, "would be an address of this process"},
		{func(struct{ a, b []int }) {}, "parameter 1: field a: []int is no type of C's"},
		{func([4]int32) {}, "arrays are not passed in C"},
	} {
		if _, err := cPrototype(typesOf(c.as)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: error %v, want %q", c.as, err, c.want)
		}
	}
}

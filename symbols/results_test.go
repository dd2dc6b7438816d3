package symbols

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// ST implements X87Regs.
func (v *vectorRegs) ST(n int) (out [10]byte, err error) {
	const st0 = 32
	copy(out[:], v.fx[st0+16*n:])
	return out, nil
}

// toReturn runs from a function's first instruction to where the call returns to.
func (x *tracee) toReturn() {
	x.t.Helper()
	var b [8]byte
	if err := x.mem.ReadMemory(x.regs().SP(), b[:]); err != nil {
		x.t.Fatal(err)
	}
	x.runTo(arch.Addr(binary.LittleEndian.Uint64(b[:])))
}

// returned is all results of the function at entry, as name=value.
func returned(t *testing.T, x *tracee, entry arch.Addr, r arch.Regs) string {
	t.Helper()
	results, err := x.tab.Results(entry)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range results {
		v := p.Value(r, x.mem)
		if _, err := json.Marshal(v.JSON); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		out = append(out, p.Name+"="+v.Text)
	}
	return strings.Join(out, " ")
}

func TestResultsAreReadAsTheFunctionReturnedThem(t *testing.T) {
	for _, c := range []struct {
		name, src string
		flags     []string
		calls     []struct{ fn, want string }
	}{
		{"C", "results.c", []string{"-g"}, cResults},
		{"C optimized", "results.c", []string{"-g", "-O2"}, cResults},
		{"C with DWARF 4", "results.c", []string{"-gdwarf-4", "-O1"}, cResults},
		{"C++", "results.cc", []string{"-g", "-O1", "-std=c++17"}, cppResults},
		{"C++ with DWARF 4", "results.cc", []string{"-gdwarf-4", "-std=c++17"}, cppResults},
		{"Go", "results.go", nil, goResults},
		{"Go not optimized", "results.go", []string{"-gcflags=-N -l"}, goResults},
		{"Go PIE", "results.go", []string{"-buildmode=pie"}, goResults},
		{"Rust", "results.rs", []string{"-g"}, rustResults},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := trace(t, build(t, c.src, c.flags...), mainOf(c.src))
			for _, call := range c.calls {
				entry := one(t, x.tab, call.fn).Addr
				x.runTo(entry)
				x.toReturn()
				got := returned(t, x, entry, x.vectorRegs())
				if !matchStars(call.want, got) {
					t.Errorf("%s\n got %s\nwant %s", call.fn, got, call.want)
				}
			}
		})
	}
}

var cResults = []struct{ fn, want string }{
	{"nothing", ``}, {"negative", `ret=-42`}, {"byte", `ret=200`}, {"truth", `ret=true`}, {"wide", `ret=-1099511627776`},
	{"most", `ret=18446744073709551615`}, {"letter", `ret=65 'A'`}, {"color", `ret=BLUE`},
	{"single", `ret=1.5`}, {"dbl", `ret=-2.25`}, {"extended", `ret=4.5`}, {"notanumber", `ret=NaN`}, {"quadruple", `ret=-0.3`},
	{"text", `ret="say \"hi\"\n"`}, {"none", `ret=0x0`}, {"pointer", `ret=0x1234`},
	{"two_ints", `ret={x: 1, y: -2}`}, {"two_doubles", `ret={a: 3.5, b: 4.5}`}, {"int_double", `ret={n: 5, d: 6.5}`},
	{"double_int", `ret={d: 7.5, n: -8}`}, {"three_floats", `ret={a: 1, b: 2, c: 3.5}`}, {"in_memory", `ret={a: 1, b: 2, c: 3}`},
	{"in_st0", `ret={l: -0.5}`}, {"of_two", `ret={i: 12, f: 1.7e-44}`}, {"huge", `ret=0x00000000000000010000000000000002`},
	{"cfloat", `ret=(1+2i)`}, {"cdouble", `ret=(3-4i)`}, {"cextended", `ret=(5+6i)`}, {"vector", `ret={1, 2, 3, -4}`},
}

var cppResults = []struct{ fn, want string }{
	{"ns::Counter::Counter", ``}, {"ns::Counter::add", `ret={n: 6}`}, {"ns::Counter::operator()", `ret=12`},
	{"ns::reference", `ret=7`}, {"ns::derived", `ret={Base: {id: 3}, extra: 4}`}, {"ns::destroyed", `ret={v: 5}`},
	{"ns::copied", `ret={v: 6}`}, {"ns::moved", `ret={v: 7}`}, {"ns::with_vptr", `ret={_vptr.Virtual: *0x, v: 8}`},
	{"ns::holder", `ret={c: {v: 8}, n: 9}`}, {"ns::empty", `ret={}`}, {"ns::level", `ret=High`},
	{"ns::string[abi:cxx11]", `ret="xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxy"`}, {"ns::view", `ret="view"`},
	{"ns::pair", `ret={first: 1, second: 2.5}`}, {"ns::largest<double>", `ret=2.5`},
}

var goResults = []struct{ fn, want string }{
	{"main.Nothing", ``}, {"main.Int", `~r0=-42`}, {"main.Byte", `~r0=200`}, {"main.Float", `~r0=2.5`},
	{"main.Pair", `~r0=5 ~r1="five"`}, {"main.Parse", `n=-1 err=(*errors.errorString)("it is empty")`},
	{"main.Parse", `n=4 err=nil`}, {"main.Wrap", `~r0=(*fmt.wrapError)("wrapped: it is empty")`},
	{"main.Typed", `~r0=(*main.Code)(*0x)`}, {"main.Errno", `~r0=syscall.Errno(2)`}, {"main.PathError", `~r0=nil ~r1=(*fs.PathError)(*0x)`},
	{"main.Any", `~r0=main.Named(-3)`}, {"main.Any", `~r0=string("text")`}, {"main.Any", `~r0=float64(1.5)`}, {"main.Any", `~r0=bool(true)`},
	{"main.Slices", `~r0=[]int{1, 2, 3} ~r1=[]uint8("raw") ~r2=[]string(nil)`},
	{"main.Structs", `~r0=main.Point{X: 1, Y: 2} ~r1=main.Deep{Name: "n", At: {X: 3, Y: 4}, ok: true} ~r2=(1-2i)`},
	{"main.Arrays", `one={9} two={8, 7} ok=true f=1.25`},
	{"main.Many", `a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=8 i=9 j=10 text="eleven"`},
	{"main.Spilled", `~r0={1, 2, 3} ~r1="s" ~r2={"p", "q"}`},
	{"main.(*Point).Moved", `~r0=main.Point{X: 4, Y: 2}`},
	{"main.Generic[...]", `~r0="text" ~r1={4, 5} ~r2=6`},
}

var rustResults = []struct{ fn, want string }{
	{"results::nothing", ``}, {"results::int", `ret=-42`}, {"results::float", `ret=2.5`}, {"results::text", `ret="hello"`},
	{"results::maybe", `ret=Some(3)`}, {"results::point", `ret={x: 1, y: 2}`}, {"results::mixed", `ret={a: 1, b: 2.5}`},
	{"results::three", `ret={a: 1, b: 2, c: 3.5}`}, {"results::bytes", `ret={a: 1, b: 2, c: 3}`},
	{"results::big", `ret={a: 1, b: 2, c: 3}`}, {"results::tuple", `ret={__0: 7, __1: true}`}, {"results::done", `ret=Ok(())`},
}

func TestResultsInAssemblyAreNotKnown(t *testing.T) {
	tab := file(t, build(t, "results.go"))
	for _, name := range []string{"runtime.memclrNoHeapPointers", "internal/bytealg.IndexByteString"} {
		if results, err := tab.Results(one(t, tab, name).Addr); !errors.Is(err, ErrNoParams) || !errors.Is(err, errAssembly) {
			t.Errorf("%s: %v, %v", name, results, err)
		}
	}
}

// The offsets are those that go vet demands of func(a int32, s string) (ok bool, n int64)
// in assembly: ok+24(FP) and n+32(FP).
func TestResultsOfGoWithoutRegistersAreBehindTheArguments(t *testing.T) {
	params := []*dtype{{kind: typeInt, size: 4, align: 4}, {kind: typeGoString, size: 16, align: 8}}
	results := []*dtype{{kind: typeBool, size: 1, align: 1}, {kind: typeInt, size: 8, align: 8}}
	s := &signature{unit: &unit{lang: langGo}}
	for _, x := range params {
		s.params = append(s.params, Param{typ: x})
	}
	for _, x := range results {
		s.results = append(s.results, Param{typ: x})
	}
	for i, want := range []int64{24, 32} {
		if got := s.resultPlaces()[i].place.parts; len(got) != 1 || got[0].reg != "" || got[0].stack != want {
			t.Errorf("result %d is at %+v, not at %d", i, got, want)
		}
	}
}

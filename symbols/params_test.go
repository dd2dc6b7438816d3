package symbols

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// vectorRegs adds the vector registers to testRegs.
type vectorRegs struct {
	*testRegs
	fx [512]byte // as fxsave writes it
}

func (v *vectorRegs) Vector(n int) (out [16]byte, ok bool) {
	const xmm = 160
	copy(out[:], v.fx[xmm+16*n:])
	return out, true
}

func (x *tracee) vectorRegs() *vectorRegs {
	x.t.Helper()
	v := &vectorRegs{testRegs: x.regs()}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETFPREGS, uintptr(x.pid), 0, uintptr(unsafe.Pointer(&v.fx)), 0, 0)
	if errno != 0 {
		x.t.Fatal(errno)
	}
	return v
}

// shown is all parameters at a function's entry, as name=value.
func shown(t *testing.T, x *tracee, r arch.Regs) string {
	t.Helper()
	params, err := x.tab.Params(r.IP())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range params {
		v := p.Value(r, x.mem)
		if _, err := json.Marshal(v.JSON); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		out = append(out, p.Name+"="+v.Text)
	}
	return strings.Join(out, " ")
}

func TestParametersAreReadAsTheCallerPassedThem(t *testing.T) {
	type call = struct{ fn, want string }
	for _, c := range []struct {
		name, src string
		flags     []string
		calls     []call
	}{
		{"C", "params.c", []string{"-g"}, cCalls},
		{"C optimized", "params.c", []string{"-g", "-O2"}, cCalls},
		{"C with DWARF 4", "params.c", []string{"-gdwarf-4", "-O1"}, cCalls},
		{"C++", "params.cc", []string{"-g", "-O1", "-std=c++17"}, cppCalls},
		{"C++ with DWARF 4", "params.cc", []string{"-gdwarf-4", "-std=c++17"}, cppCalls},
		{"Go", "params.go", nil, goCalls},
		{"Go not optimized", "params.go", []string{"-gcflags=-N -l"}, goCalls},
		{"Go PIE", "params.go", []string{"-buildmode=pie"}, goCalls},
		{"Rust", "params.rs", []string{"-g"}, rustCalls},
		{"Rust with v0 names", "params.rs", []string{"-g", "-Csymbol-mangling-version=v0"}, rustCalls},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := trace(t, build(t, c.src, c.flags...), mainOf(c.src))
			for _, call := range c.calls {
				x.runTo(one(t, x.tab, call.fn).Addr)
				got := shown(t, x, x.vectorRegs())
				if !matchStars(call.want, got) {
					t.Errorf("%s\n got %s\nwant %s", call.fn, got, call.want)
				}
			}
		})
	}
}

// matchStars compares with a text in which * stands for an unknown word.
func matchStars(want, got string) bool {
	for {
		i := strings.Index(want, "*0x")
		if i < 0 {
			return want == got
		}
		if len(got) < i || want[:i] != got[:i] {
			return false
		}
		want, got = want[i+3:], strings.TrimLeft(strings.TrimPrefix(got[i:], "0x"), "0123456789abcdef")
	}
}

var cCalls = []struct{ fn, want string }{
	{"scalars", `i=-42 u=200 s=-3 l=1099511627776 b=true c=65 'A' z=99`},
	{"floats", `f=1.5 d=-2.25 i=3 ld=4.5 e=5.5`},
	{"pointers", `s="say \"hi\"\n" p=0x1234 ip=*0x fn=0x10 none=0x0`},
	{"enums", `a=GREEN b=BLUE c=77`},
	{"structs", `p={x: 1, y: 2} q={a: 3.5, b: 4.5} m={n: 5, d: 6.5} k={f: 7.5, i: 8}`},
	{"memory", `b={a: 1, b: 2, c: 3} after=9 n={name: "abc"} e={i: 12, f: 1.7e-44}`},
	{"many", `a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=104 'h' x=8.5`},
	{"returns_big", `a=11`},
	{"split", `a=1 b=2 c=3 d=4 e=5 m={n: 6, d: 7.5} p={a: 8.5, b: 9.5} q={x: 10, y: 11} f=12`},
	{"wide", `w=0x00000000000000010000000000000002 a=3`},
	{"cplx", `f=(1+2i) d=(3+4i)`},
	{"nine", `a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=8 i=9.5 j=10`},
	{"transparent", `fd=3 a=0x1234 len=16`},
}

var cppCalls = []struct{ fn, want string }{
	{"cyclic", `n={next: *0x, v: 1} p=*0x by={next: 0x0, v: 2}`},
	{"ns::Counter::add", `this=*0x by=5 why="a reason that is longer than the local buffer"`},
	{"ns::refs", `r=42 d={Base: {id: 3}, extra: 4} o={v: 6} last=7`},
	{"ns::strings", `s="short" v="view" p=*0x`},
}

var goCalls = []struct{ fn, want string }{
	{"main.Scalars", `a=-1 b=200 c=true d=2.5 e=1.25 f=120 n=9`},
	{"main.Strings", `~p0=1 s="hello" long="0123456789012345678901234567890123456789012345678901234567890123"… empty="" b=[]uint8("raw") ~p5=true`},
	{"main.Slices", `s=[]int{1, 2, 3} t=[]string{"a", "b"} none=[]int(nil) big=[]int{0, 0, 0, 0, 0, 0, 0, 0, … 100 in all}`},
	{"main.Structs", `p=main.Point{X: 1, Y: 2} d=main.Deep{Name: "n", At: {X: 3, Y: 4}, ok: true} one={5} two={6, 7} z=struct {}{} c=(1+2i)`},
	{"main.Pointers", `p=*0x q=nil m=map[string]int(nil) c=nil f=nil e=(*fs.PathError)(*0x) none=nil any=main.Named(3)`},
	{"main.Many", `a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=8 i=9 j=10 s="eleven"`},
	{"main.(*Point).Move", `p=*0x dx=3 dy=4`},
	{"main.Generic[...]", `a="text" b=[]go.shape.string{"x"} c=5`},
	{"main.(*Box[...]).Put", `b=*0x v=2.5 n=6`},
}

var rustCalls = []struct{ fn, want string }{
	{"params::scalars", `a=-5 b=250 c=true d=2.5 e='z'`},
	{"params::text", `s="hello" n=7`},
	{"params::aggregates", `p={x: 1, y: 2} q={a: 1.5, b: 2.5} b={a: 1, b: 2, c: 3} last=9`},
	{"params::trio", `t={a: 1, b: 2, c: 3} last=4 e=Some(5) lost=6`},
	{"*Holder*put", `self=*0x v=4 n=5`},
	{"*Holder*clone", `self=*0x`},
}

func TestFloatsAreUnknownWithoutVectorRegisters(t *testing.T) {
	x := trace(t, build(t, "params.c", "-g"), "floats")
	if got := shown(t, x, x.regs()); got != "f=? d=? i=3 ld=4.5 e=?" {
		t.Errorf("parameters are %q", got)
	}
}

func TestParametersWithoutDebugInformationAreAnError(t *testing.T) {
	tab := file(t, build(t, "params.c", "-s"))
	loc, err := tab.Resolve(t.Context(), "0x"+strings.TrimPrefix(entryOf(tab).String(), "0x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Params(loc[0].Addr); !errors.Is(err, ErrNoParams) || !errors.Is(err, ErrNoDebugInfo) || !strings.Contains(err.Error(), ".debug") {
		t.Errorf("error %v, want one that says which debug file was looked for", err)
	}
}

func entryOf(tab *Table) arch.Addr { return arch.Addr(tab.Modules()[0].img.f.Entry) }

func mainOf(src string) string {
	if strings.HasSuffix(src, ".go") {
		return "main.main"
	}
	if name, ok := strings.CutSuffix(src, ".rs"); ok {
		return name + "::start"
	}
	return "main"
}

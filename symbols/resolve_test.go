package symbols

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// layouts are the ways a C program can be linked and loaded.
var layouts = []struct {
	name  string
	flags []string
}{
	{"PIE", []string{"-pie", "-fPIE"}},
	{"fixed address", []string{"-no-pie"}},
	{"static", []string{"-static", "-no-pie"}},
	{"static PIE", []string{"-static-pie", "-fPIE"}},
	{"bound lazily", []string{"-Wl,-z,lazy", "-O0"}},
}

func TestNamesResolveToTheAddressesTheProgramPrints(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			tg := start(t, build(t, "names.c", l.flags...))
			tab := tg.open(t)
			for _, name := range []string{"main", "hidden", "visible", "alias_of_visible", "malloc"} {
				if got := one(t, tab, name); got.Addr != tg.said[name] {
					t.Errorf("%s is at %v, the program says %v", name, got.Addr, tg.said[name])
				} else if got.Symbol.Name != name || !got.Symbol.Func {
					t.Errorf("%s: symbol is %+v", name, got.Symbol)
				}
			}
		})
	}
}

// A non-PIE program takes the address of an indirect function of a library as
// its own linkage stub, so those layouts compare with the slots only.
func TestIndirectFunctionsResolveToTheImplementationInUse(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			tg := start(t, build(t, "names.c", l.flags...))
			tab := tg.open(t)
			for _, name := range []string{"strlen", "memcpy", "gettimeofday"} {
				got := one(t, tab, name)
				if l.name != "fixed address" && l.name != "static" && got.Addr != tg.said[name] {
					t.Errorf("%s is at %v, the program says %v", name, got.Addr, tg.said[name])
				}
				if got.Symbol.IFunc || got.Symbol.Name != name {
					t.Errorf("%s: symbol is %+v", name, got.Symbol)
				}
				back, ok := tab.Lookup(got.Addr + 1)
				if !ok || back.Offset != 1 || back.Symbol.Name == "" {
					t.Errorf("Lookup(%v) = %+v", got.Addr+1, back)
				}
			}
		})
	}
}

func TestEveryFunctionOfAFileIsFoundWhereNmFindsIt(t *testing.T) {
	prog := build(t, "names.c", "-static", "-no-pie")
	tab := file(t, prog)
	for name, addr := range nm(t, "--defined-only", prog) {
		locs, err := tab.Resolve(t.Context(), name)
		var many *AmbiguousError
		switch {
		case errors.As(err, &many):
			locs = many.Candidates
		case errors.Is(err, ErrIFuncUnbound):
			continue
		case err != nil:
			t.Errorf("Resolve(%q): %v", name, err)
			continue
		}
		found := false
		for _, l := range locs {
			found = found || l.Addr == addr
		}
		if !found {
			t.Errorf("%s: nm has %v, Resolve %v", name, addr, locs)
		}
	}
}

func TestSpecifications(t *testing.T) {
	tg := start(t, build(t, "names.c", "-pie", "-fPIE", "-g", "-O1"))
	tab := tg.open(t)
	vis := tg.said["visible"]
	link := one(t, tab, "visible").Symbol.Module.link(vis)
	size := one(t, tab, "visible").Symbol.Size
	for _, c := range []struct {
		spec string
		want []arch.Addr
		err  error
		says string
	}{
		{spec: "visible", want: []arch.Addr{vis}},
		{spec: " visible ", want: []arch.Addr{vis}},
		{spec: "visible+4", want: []arch.Addr{vis + 4}},
		{spec: "visible+0x4", want: []arch.Addr{vis + 4}},
		{spec: "prog:visible+0x4", want: []arch.Addr{vis + 4}},
		{spec: "visible+*", want: []arch.Addr{vis}},
		{spec: "prog:visible", want: []arch.Addr{vis}},
		{spec: "libc:malloc", want: []arch.Addr{tg.said["malloc"]}},
		{spec: "libc.so.6:malloc", want: []arch.Addr{tg.said["malloc"]}},
		{spec: vis.String(), want: []arch.Addr{vis}},
		{spec: "prog:" + arch.Addr(link).String(), want: []arch.Addr{vis}},
		{spec: "prog:vis*", want: []arch.Addr{vis}},
		{spec: "prog:v?sible", want: []arch.Addr{vis}},
		{spec: "prog:[uv]isible", want: []arch.Addr{vis}},
		{spec: "pro*:visible", want: []arch.Addr{vis}},
		{spec: "pr?g:vis*", want: []arch.Addr{vis}},
		{spec: "*/prog:visible", want: []arch.Addr{vis}},
		{spec: "libc.*:malloc", want: []arch.Addr{tg.said["malloc"]}},
		{spec: "hidd*", want: []arch.Addr{tg.said["hidden"]}},

		{spec: "", err: ErrBadSpec},
		{spec: "0xzz", err: ErrBadSpec},
		{spec: "vis\x00ible", err: ErrBadSpec},
		{spec: "visble", err: ErrUnknownSymbol, says: "did you mean visible"},
		{spec: "visble", err: unix.ENOENT},
		{spec: "Visible", err: ErrUnknownSymbol, says: "did you mean visible"},
		{spec: "prog:visble", err: ErrUnknownSymbol, says: "in prog"},
		{spec: "progg:visible", err: ErrUnknownModule, says: "did you mean prog"},
		{spec: "nothing_like_it*", err: ErrUnknownSymbol, says: "in which * stands for any text"},
		{spec: "prog:^visible.*", err: ErrUnknownSymbol, says: "this is a pattern as in a shell"},
		{spec: "libnothing*:visible", err: ErrUnknownModule},
		{spec: "pro*:visble", err: ErrUnknownSymbol, says: "did you mean visible"},
		{spec: "counter", err: ErrNotCode, says: "is a variable"},
		{spec: "0x10", err: ErrNotMapped},
		{spec: "visible+100000000", err: ErrNotMapped},
		{spec: "visible+" + arch.Addr(size).String(), err: ErrBadSpec, says: "behind the function's end"},
		{spec: "names.c:1", err: ErrNoLine, says: "names.c:1"},
		{spec: "other.c:1", err: ErrNoLine, says: "other.c"},
	} {
		locs, err := tab.Resolve(t.Context(), c.spec)
		if !errors.Is(err, c.err) {
			t.Errorf("Resolve(%q): error %v, want %v", c.spec, err, c.err)
			continue
		}
		if c.says != "" && !strings.Contains(err.Error(), c.says) {
			t.Errorf("Resolve(%q): %q does not say %q", c.spec, err, c.says)
		}
		if len(locs) != len(c.want) {
			t.Errorf("Resolve(%q) = %v, want %v", c.spec, locs, c.want)
			continue
		}
		for i, l := range locs {
			if l.Addr != c.want[i] {
				t.Errorf("Resolve(%q) = %v, want %v", c.spec, l.Addr, c.want[i])
			}
		}
	}
	counter, err := tab.Object("counter")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Resolve(t.Context(), counter.Addr.String()); !errors.Is(err, ErrNotExecutable) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("a variable's address: %v", err)
	}
	every := one(t, tab, "visible+*").Every
	if every.Start != vis || every.Len() != size {
		t.Errorf("visible+* stands for %v, want %d bytes at %v", every, size, vis)
	}
}

func TestOverloadsAreToldApartByTheirParameters(t *testing.T) {
	tab := file(t, build(t, "overload.cc", "-O1"))
	for _, c := range []struct{ spec, linkage string }{
		{"ns::over(int)", "_ZN2ns4overEi"},
		{"ns::over( double )", "_ZN2ns4overEd"},
		{"_ZN2ns4overEi", "_ZN2ns4overEi"},
		{"ns::Box<int>::take", "_ZN2ns3BoxIiE4takeEi"},
		{"ns::Box<int>::take(int)", "_ZN2ns3BoxIiE4takeEi"},
		{"ns::Box::take", "_ZN2ns3BoxIiE4takeEi"},
		{"ns::Ops::operator+", "_ZNK2ns3OpsplERKS0_"},
		{"ns::Ops::operator*", "_ZNK2ns3OpsmlEi"},
		{"ns::Ops::operator[]", "_ZNK2ns3OpsixEi"},
		{"ns::Ops::operator[](int) const", "_ZNK2ns3OpsixEi"},
		{"prog:ns::Ops::operator[]", "_ZNK2ns3OpsixEi"},
		{"ns::single*", "_ZN2ns6singleERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt6vectorIiSaIiEE"},
	} {
		if got := one(t, tab, c.spec); got.Symbol.Linkage != c.linkage {
			t.Errorf("%s is %s, want %s", c.spec, got.Symbol.Linkage, c.linkage)
		}
	}
	_, err := tab.Resolve(t.Context(), "ns::over")
	var many *AmbiguousError
	if !errors.As(err, &many) || !errors.Is(err, ErrAmbiguous) || len(many.Candidates) != 2 {
		t.Fatalf("ns::over: %v, want two candidates", err)
	}
	for _, s := range []string{"ns::over(int)", "ns::over(double)", "prog:"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not name %s", err, s)
		}
	}
	if locs, err := tab.Resolve(t.Context(), "ns::over*"); err != nil || len(locs) != 2 {
		t.Errorf("ns::over* = %v, %v, want both", locs, err)
	}
}

func TestAFileThatWasDeletedIsStillRead(t *testing.T) {
	prog := build(t, "names.c", "-pie", "-fPIE")
	tg := start(t, prog)
	if err := os.Remove(prog); err != nil {
		t.Fatal(err)
	}
	if got := one(t, tg.open(t), "visible"); got.Addr != tg.said["visible"] {
		t.Errorf("visible is at %v, the program says %v", got.Addr, tg.said["visible"])
	}
}

func TestTheVDSOIsReadFromMemory(t *testing.T) {
	tab := start(t, build(t, "names.c")).open(t)
	loc := one(t, tab, "[vdso]:__vdso_gettimeofday")
	if loc.Symbol.Module.Kind != KindVDSO {
		t.Errorf("module is %+v", loc.Symbol.Module)
	}
	if back, ok := tab.Lookup(loc.Addr + 2); !ok || back.Offset != 2 {
		t.Errorf("Lookup = %v", back)
	}
}

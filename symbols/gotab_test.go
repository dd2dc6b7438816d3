package symbols

import (
	"strings"
	"testing"
)

// goLayouts are the ways a Go program can be linked.
var goLayouts = []struct {
	name  string
	flags []string
}{
	{"plain", nil},
	{"stripped", []string{"-ldflags=-s -w"}},
	{"PIE", []string{"-buildmode=pie"}},
	{"stripped PIE", []string{"-buildmode=pie", "-ldflags=-s -w"}},
	{"stripped, linked by gcc", []string{"-ldflags=-s -w -linkmode=external"}},
	{"stripped PIE, linked by gcc", []string{"-buildmode=pie", "-ldflags=-s -w -linkmode=external"}},
}

func TestGoNamesResolveToTheAddressesTheProgramPrints(t *testing.T) {
	for _, l := range goLayouts {
		t.Run(l.name, func(t *testing.T) {
			tg := start(t, build(t, "plain.go", l.flags...))
			tab := tg.open(t)
			for name, addr := range tg.said {
				loc := one(t, tab, name)
				if loc.Addr != addr {
					t.Errorf("%s is at %v, the program says %v", name, loc.Addr, addr)
				}
				if strings.HasPrefix(l.name, "stripped") && loc.Symbol.Source != SourcePclntab {
					t.Errorf("%s comes from %s", name, loc.Symbol.Source)
				}
				if back, ok := tab.Lookup(addr + 1); !ok || back.String() != name+"+0x1" {
					t.Errorf("Lookup(%v) = %v", addr+1, back)
				}
				file, line, ok := tab.Line(addr)
				if strings.HasPrefix(name, "main.") && (!ok || !strings.HasSuffix(file, "plain.go") || line == 0) {
					t.Errorf("Line(%v) = %s:%d %v", addr, file, line, ok)
				}
				if r, known := tab.Function(addr); !known || r.Start != addr || r.Len() != loc.Symbol.Size {
					t.Errorf("Function(%v) = %v %v", addr, r, known)
				}
			}
			if loc := one(t, tab, "runtime.goexit"); !strings.HasPrefix(loc.Symbol.Name, "runtime.goexit") {
				t.Errorf("runtime.goexit is %+v", loc)
			}
			if loc := one(t, tab, "main.(*T).Method.func1"); loc.Symbol.Name != "main.(*T).Method.func1" {
				t.Errorf("closure is %+v", loc)
			}
			if loc := one(t, tab, "bytealg.IndexByte"); !strings.HasPrefix(loc.Symbol.Name, "internal/bytealg.IndexByte") {
				t.Errorf("bytealg.IndexByte is %+v", loc)
			}
			// Two instances; a stripped program knows both by one name.
			if locs, err := tab.Resolve(t.Context(), "main.Map[...]"); err != nil || len(locs) != 2 {
				t.Errorf("main.Map[...] = %v, %v, want two instances", locs, err)
			}
			if _, err := tab.Resolve(t.Context(), "main.Map"); err == nil || !strings.Contains(err.Error(), `"main.Map" is generic; "main.Map[...]" stands for its 2 instances`) {
				t.Errorf("main.Map: %v", err)
			}
			if locs, err := tab.Resolve(t.Context(), "main.(*T).*"); err != nil || len(locs) != 2 {
				t.Errorf("main.(*T).* = %v, %v, want the method and its closure", locs, err)
			}
			if locs, err := tab.Resolve(t.Context(), "plain.go:13"); err != nil || len(locs) == 0 || !strings.HasPrefix(locs[0].Symbol.Name, "main.(*T).Method") {
				t.Errorf("plain.go:13 = %v, %v", locs, err)
			}
		})
	}
}

func TestAStrippedGoFunctionWinsBeforeItsABIWrapper(t *testing.T) {
	want := nm(t, build(t, "plain.go"))
	tab := file(t, build(t, "plain.go", "-ldflags=-s -w"))
	for _, name := range []string{"runtime.newproc", "runtime.newstack", "runtime.asmcgocall"} {
		loc := one(t, tab, name)
		own := want[name]
		if a, ok := want[name+".abi0"]; ok && name == "runtime.asmcgocall" {
			own = a // assembly: the other one is the wrapper
		}
		if loc.Addr != own {
			t.Errorf("%s is at %v, nm says %v", name, loc.Addr, own)
		}
	}
}

func TestGoNamesUnescapeTheImportPath(t *testing.T) {
	for escaped, plain := range map[string]string{
		"gopkg.in/yaml%2ev3.Unmarshal": "gopkg.in/yaml.v3.Unmarshal",
		"a%zz":                         "a%zz",
		"100%":                         "100%",
	} {
		if got := unescapeGo(escaped); got != plain {
			t.Errorf("unescapeGo(%q) = %q, want %q", escaped, got, plain)
		}
	}
}

package numbers

import (
	_ "embed"
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

var (
	//go:embed testdata/globals.c
	globalsC string
	//go:embed testdata/globals.cc
	globalsCXX string
	//go:embed testdata/globals.rs
	globalsRust string
	//go:embed testdata/globals.go.txt
	globalsGo string
)

var globalsInC = [][2]string{
	{"conf.level", "3"}, {"conf.name", `"prod"`}, {"conf.in.a[1]", "2"}, {"conf.in.a[1:3]", "{2, 3}"}, {"conf.next->next->name", `"prod"`}, {"hits", "11"}, {"*(&hits)", "11"}, {"*&conf.level", "3"}, {"(*(&conf)).next->level", "3"}, {"conf.in.a[conf.level-2]", "2"}, {"conf.in.a[conf.level]", "?"}, {"banner[small+5:level+1]", `"el"`}, {"banner", `"hello"`}, {"banner[1:3]", `"el"`},
	{"ratio", "1.5"}, {"small", "-4"}, {"mode", "ON"}, {"depth", "8"}, {"mine.level", "9"}, {"mine.in", "{a: {4, 5, 6}}"}, {"errno", "9"}, {"level", "2"}, {"conf.in.a[:2]", "{1, 2}"},
	{"((struct conf *)arg)->level", "3"}, {"((conf_t *)arg).next.name", `"prod"`}, {"((conf_t*)arg)->in.a[2]", "3"},
}

// globalsAtReturn are as the call has left them.
var globalsAtReturn = [][2]string{{"errno", "2"}, {"optind", "1"}, {"depth", "8"}, {"conf.name", `"prod"`}, {"mine.in", "{a: {4, 5, 6}}"}}

var globalsInCXX = [][2]string{
	{"total", "2"}, {"app::shop::total", "5"}, {"shop::total", "5"}, {"shop::mine", "77"}, {"app::inner::v", "{1, 2, 3}"}, {"inner::v[1]", "2"}, {"v[3]", "?"}, {"len(v)", "3"}, {"v[1:3]", "{2, 3}"}, {"v[1:4]", "?"},
	{"inner::counter", "11"}, {"app::other::counter", "12"}, {"hidden", "3"}, {"app::inner::limit", "42"}, {"s.name", `"corner"`}, {"same.name", `"corner"`}, {"text", `"a text that is too long for the buffer"`}, {"text[2:6]", `"text"`},
}

var globalsInRust = [][2]string{
	{"n", "2"}, {"COUNT", "3"}, {"cfg::COUNT", "3"}, {"NAME", `"rusty"`}, {"cfg::PAIR.a", "-4"}, {"PAIR", `{a: -4, b: "bee"}`}, {"cfg::PAIR.b[1:3]", `"ee"`},
}

var globalsInGo = [][2]string{
	{"n", "2"}, {"counter", "5"}, {"main.counter", "5"}, {"cfg.Name", `"prod"`}, {"main.cfg.Tags[1]", `"bc"`}, {"len(cfg.Tags)", "2"}, {"ptr.Level", "2"}, {"ratio", "2.5"}, {"größe", "7"}, {"main.größe", "7"}, {"main.ptr.Tags[0:2]", `{"a", "bc"}`},
	{"goid", "1"}, {"cfg.Name[1:3]", `"ro"`}, {"cfg.Name[1:9]", "?"}, {"cfg.Tags[2]", "?"},
}

// TestVariablesOutsideOfFunctions: what the whole program or a thread has, named as its source does, at entries and at returns.
func TestVariablesOutsideOfFunctions(t *testing.T) {
	for _, x := range []struct {
		maker
		source string
		all    [][2]string
		entry  string
	}{
		{maker{name: "gcc", levels: [][]string{{"-g", "-O2", "-fno-pie", "-no-pie"}, {"-g", "-static"}}, suffix: ".c"}, globalsC, globalsInC, "handle"},
		{maker{name: "clang", levels: [][]string{{"-g", "-O2"}}, suffix: ".c"}, globalsC, globalsInC, "handle"},
		{maker{name: "gcc", levels: [][]string{{"-g", "-O2", "-gdwarf-4"}}, suffix: ".c"}, globalsC, globalsAtReturn, "handle%return"},
		{maker{name: "musl-gcc", levels: [][]string{{"-g", "-O2"}, {"-g", "-static"}}, suffix: ".c"}, globalsC, globalsAtReturn[:1], "handle%return"},
		{maker{name: "g++", levels: [][]string{{"-g", "-O2"}}, suffix: ".cc"}, globalsCXX, globalsInCXX, "app::handle"},
		{maker{name: "clang++", levels: [][]string{{"-g", "-std=c++17"}}, suffix: ".cc"}, globalsCXX, globalsInCXX, "app::handle"},
		{maker{name: "rustc", levels: [][]string{{"-g", "-O"}}, suffix: ".rs"}, globalsRust, globalsInRust, "handle"},
		{maker{name: "go", levels: [][]string{{}}, suffix: ".go"}, globalsGo, globalsInGo, "main.handle"},
	} {
		for _, flags := range x.levels {
			bin := x.compile(t, flags, x.source)
			for _, stops := range []bool{false, true} {
				hold, fail := conditionsOf(x.all)
				walk(t, bin, x.entry, x.all, hold, fail, stops)
			}
		}
	}
}

// TestGlobalsComeWithEachHit by their names and by patterns, at entries and at returns, recorded in the target and where threads stop.
func TestGlobalsComeWithEachHit(t *testing.T) {
	for _, x := range []struct {
		maker
		source, entry string
		names         []string
		want          string
	}{
		{maker{name: "gcc", levels: [][]string{{"-g", "-O2"}}, suffix: ".c"}, globalsC, "handle", []string{"ratio", "[bh]*[rs]", "depth"}, `ratio=1.5 banner="hello" hits=11 depth=8`},
		{maker{name: "g++", levels: [][]string{{"-g", "-O2"}}, suffix: ".cc"}, globalsCXX, "app::handle", []string{"shop::total", "app::*::counter"}, `shop::total=5 app::inner::counter=11 app::other::counter=12`},
		{maker{name: "go", levels: [][]string{{}}, suffix: ".go"}, globalsGo, "main.handle", []string{"main.[rg]*"}, `main.größe=7 main.ratio=2.5`},
	} {
		bin := x.compile(t, x.levels[0], x.source)
		for _, stops := range []bool{false, true} {
			p := testprog.Start(t, bin)
			s, err := trace.Attach(t.Context(), p.PID(), trace.With(kprobes.Options{NoOptimize: stops}))
			if err != nil {
				t.Fatal(err)
			}
			var probes []*trace.Probe
			for _, spec := range []string{x.entry, x.entry + "%return"} {
				probes = append(probes, place(t, s, spec, trace.Globals(x.names...)), place(t, s, spec, trace.Globals(x.names...), trace.Stack(1)))
			}
			var wrong *caret.Error
			if _, err := s.Probe(x.entry, trace.Globals("nobody")); !errors.As(err, &wrong) || wrong.ID != "NO_GLOBAL" {
				t.Errorf("nobody: %v", err)
			}
			if _, err := s.Probe(x.entry, trace.Globals("nobody*")); !errors.As(err, &wrong) || wrong.ID != "NO_GLOBAL" {
				t.Errorf("nobody*: %v", err)
			}
			p.Do("go", "done")
			for i, probe := range probes {
				if err := probe.Close(); err != nil {
					t.Error(err)
				}
				n := 0
				for h := range probe.Hits() {
					var got []string
					for _, a := range h.Globals {
						got = append(got, a.Name+"="+a.String())
					}
					if n++; strings.Join(got, " ") != x.want {
						t.Errorf("%s, stops: %t, %d: %q, not %q", x.name, stops, i, got, x.want)
					}
				}
				if n != 1 {
					t.Errorf("%s, stops: %t, %d: %d hits", x.name, stops, i, n)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			p.CheckClean()
			p.Quit()
		}
	}
}

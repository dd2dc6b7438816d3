package numbers

import (
	_ "embed"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

//go:embed testdata/scopes.cc
var scopesCXX string

// TestANameMeansWhatItDoesInTheSource at that place, or nothing.
func TestANameMeansWhatItDoesInTheSource(t *testing.T) {
	for _, m := range []maker{
		{name: "g++", levels: [][]string{{"-g", "-O2"}}, suffix: ".cc"}, {name: "clang++", levels: [][]string{{"-g"}}, suffix: ".cc"},
	} {
		p := testprog.Start(t, m.compile(t, m.levels[0], scopesCXX))
		s, err := trace.Attach(t.Context(), p.PID())
		if err != nil {
			t.Fatal(err)
		}
		want := map[*trace.Probe]string{}
		for _, x := range [][3]string{
			{"one::user", "cnt", "2"}, {"one::user", "::cnt", ""}, {"one::user", "two::C::cnt", "5"}, {"one::user", "size", "1"}, {"two::C::meth", "cnt", "5"}, {"two::C::meth", "one::cnt", "2"},
			{"two::C::meth", "size", ""}, {"two::C::meth", "this->size", "77"}, {"(anonymous namespace)::deep::inner", "cnt", "6"}, {"user", "cnt", "1"}, {"user", "deep::cnt", "6"}, {"user", "C::cnt", "5"},
			{"user", "calls", ""}, {"one::user", "calls", "1"}, {"user%return", "calls", ""}, {"one::user", "level", "1000"}, {"user", "level", ""}, {"user", "duration", ""},
		} {
			probe, err := s.Probe(x[0], trace.AsInSource(), trace.Fetch("v="+x[1]))
			var wrong *caret.Error
			switch {
			case err == nil && x[2] != "":
				want[probe] = x[2]
			case err == nil, x[2] != "", !errors.As(err, &wrong):
				t.Errorf("%s: %s in %s: %v", m.name, x[1], x[0], err)
			}
		}
		if probe, err := s.Probe("inlined", trace.AsInSource(), trace.Fetch("v=level")); err == nil {
			t.Errorf("%s: where inlined is, level is one of others: %+v", m.name, probe.Stats())
		}
		p.Do("go", "done")
		for probe, value := range want {
			if err := probe.Close(); err != nil {
				t.Error(err)
			}
			for h := range probe.Hits() {
				if got := h.Args[0].String(); got != value {
					t.Errorf("%s: %s: %s, not %s", m.name, h.Probe, got, value)
				}
			}
			if n := probe.Stats().Hits; n != 1 {
				t.Errorf("%s: %d hits", m.name, n)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.CheckClean()
		p.Quit()
	}
}

package trace_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// TestVariablesAreKnownAtLines: parameters and local variables of the blocks around the line, in the target and where threads stop. Conditions and fetch
// arguments may name them.
func TestVariablesAreKnownAtLines(t *testing.T) {
	for _, stops := range []bool{false, true} {
		p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
		s := attach(t, p, trace.With(kprobes.Options{NoOptimize: stops}))
		loop, err1 := s.Probe("places.c:23", trace.Args(), trace.Locals(), trace.If("i >= 1 && part > 7"), trace.Fetch("x=it->count", "w=own.weight"))
		hides, err2 := s.Probe("places.c:28", trace.Args(), trace.Locals(), trace.Fetch("n"))
		deep, err3 := s.Probe("places.c:14", trace.Args(), trace.Locals())
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		p.Do("work 4", "sum 51")
		ends(t, p, s)
		if got, want := told(loop), []string{
			"n=4 it=0x x=105 w=7 locals sum=7 own={count: 4, weight: 7, name: \"own\"} i=2 part=14",
			"n=4 it=0x x=112 w=7 locals sum=21 own={count: 4, weight: 7, name: \"own\"} i=3 part=21",
		}; !slices.Equal(got, want) {
			t.Errorf("stops: %t: in the loop:\n%s\nwant\n%s", stops, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got, want := told(hides), []string{"it=0x n=5 locals sum=42 own={count: 4, weight: 7, name: \"own\"} n=5"}; !slices.Equal(got, want) {
			t.Errorf("stops: %t: where a parameter is hidden: %s, want %s", stops, got, want)
		}
		if got, want := told(deep), []string{"v=0 locals calls=C twice=0", "v=1 locals calls=C twice=2", "v=2 locals calls=C twice=4", "v=3 locals calls=C twice=6"}; !slices.Equal(got, want) {
			t.Errorf("stops: %t: in the function that is called: %s, want %s", stops, got, want)
		}
	}
}

// told is the values of all hits, without what differs from run to run.
func told(p *trace.Probe) (all []string) {
	for h := range p.Hits() {
		var b []byte
		for i, list := range [][]trace.Arg{h.Args, h.Locals} {
			if i == 1 {
				b = append(b, "locals "...)
			}
			for _, a := range list {
				b = fmt.Appendf(b, "%s=", a.Name)
				switch a.Name {
				case "it":
					b = append(b, "0x "...)
				case "calls":
					b = append(b, "C "...)
				default:
					b = append(a.Append(b), ' ')
				}
			}
		}
		all = append(all, strings.TrimSpace(string(b)))
	}
	return all
}

// TestUnknownVariablesAreErrorsThatNameThem, and leave nothing armed.
func TestUnknownVariablesAreErrorsThatNameThem(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	s := attach(t, p)
	for _, name := range []string{"nope", "twice"} { // of no function, of another one
		if _, err := s.Probe("places.c:23", trace.Fetch(name)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Probe("places.c:23", trace.If("nope > 1")); err == nil {
		t.Error("a condition over what there is not was accepted")
	}
	ends(t, p, s)
}

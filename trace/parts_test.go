package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// whole is a value as its parts make it.
func whole(a trace.Arg) string {
	parts := a.Parts()
	if parts == nil {
		return a.String()
	}
	var texts []string
	for i, p := range parts {
		text := whole(p)
		if p.Name != fmt.Sprintf("[%d]", i) {
			text = p.Name + ": " + text
		}
		texts = append(texts, text)
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// TestPartsMakeTheirWhole: structures and lists of Go and C, down to plain values. The text of the whole is the oracle.
func TestPartsMakeTheirWhole(t *testing.T) {
	for _, c := range []struct {
		prog, spec, call string
		says             string
		flags            []string
		parts            int
	}{
		{prog: "govalues", spec: "main.list%return", call: "call 5", says: "ret", parts: 3},
		{prog: "govalues", spec: "main.point%return", call: "call 5", says: "ret", parts: 2},
		{prog: "govalues", spec: "main.array%return", call: "call 5", says: "ret", parts: 3},
		{prog: "places", spec: "places.c:28", call: "work 3", says: "sum", flags: []string{"-O0"}, parts: 3},
	} {
		p := testprog.Start(t, testprog.Build(t, c.prog, c.flags...))
		s := attach(t, p)
		probe, err := s.Probe(c.spec, trace.Locals())
		if err != nil {
			t.Fatal(err)
		}
		p.Do(c.call, c.says)
		ends(t, p, s)
		seen := 0
		for h := range probe.Hits() {
			for _, a := range append(h.Results, h.Locals...) {
				_, braces, composite := strings.Cut(a.String(), "{")
				if !composite {
					continue
				}
				seen++
				if got := whole(a); got != "{"+braces || len(a.Parts()) != c.parts {
					t.Errorf("%s: %s is made of %s, which are %d", c.spec, a, got, len(a.Parts()))
				}
			}
		}
		if seen == 0 {
			t.Errorf("%s: there was nothing that has parts: %+v", c.spec, probe.Stats())
		}
	}
}

// TestOnlyChosenHitsAreHandedOn: all are counted, those that meet the condition are asked for, and the pace counts the chosen ones.
func TestOnlyChosenHitsAreHandedOn(t *testing.T) {
	for _, stops := range []bool{false, true} {
		p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
		s := attach(t, p, trace.With(kprobes.Options{NoOptimize: stops}))
		asked, pace := 0, trace.NewPace(1000)
		probe, err := s.Probe("places.c:23", trace.Fetch("i"), trace.If("i >= 2"), trace.At(pace), trace.Only(func() bool { asked++; return asked%3 == 0 }))
		if err != nil {
			t.Fatal(err)
		}
		p.Do("work 12", "sum")
		ends(t, p, s)
		var got []string
		for h := range probe.Hits() {
			got = append(got, h.Arg("i").String())
		}
		if all := strings.Join(got, " "); all != "4 7 10" || asked != 10 || probe.Stats().Hits != 10 || pace.Over() != 0 {
			t.Errorf("stops: %t: hits of %s, asked for %d, %d counted", stops, all, asked, probe.Stats().Hits)
		}
	}
}

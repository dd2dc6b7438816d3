package event

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func counts(t *testing.T, probes []ProbeSummary, o CountOptions) string {
	t.Helper()
	var out countingWriter
	if err := PrintCounts(&out, &Summary{Probes: probes}, o); err != nil || out.calls != 1 {
		t.Fatalf("%d writes, %v", out.calls, err)
	}
	return out.String()
}

func TestCountsAreSortedAndTellOfTheRest(t *testing.T) {
	probes := []ProbeSummary{
		{Probe: "idle", Symbol: "idle+0x0", Mechanism: "optimized"},
		{Probe: "b", Symbol: "b+0x0", Hits: 7, Mechanism: "boosted", Reason: "it is short"},
		{Probe: "lib.so:a", Symbol: "a+0x0", Hits: 7, NMissed: 1, Mechanism: "optimized"},
		{Probe: "f.c:4", Symbol: "a+0x9", Hits: 120000, Mechanism: "optimized"},
		{Probe: "late%return", Symbol: "late+0x0", Kind: "kretprobe", NMissed: 3, Mechanism: "int3"},
		{Probe: "bad\n", Symbol: "bad\n+0x0", Hits: 1, Mechanism: "waiting"},
	}
	for _, c := range []struct {
		o    CountOptions
		want string
	}{
		{CountOptions{}, `  HITS  MISSED  PROBE          MECHANISM
120000       0  f.c:4 (a+0x9)  optimized
     7       1  lib.so:a       optimized
     7       0  b              boosted (not optimized: it is short)
     1       0  bad\n          waiting
     0       3  late%return    int3
1 probe was not hit; -all-rows prints all
`},
		{CountOptions{All: true, Columns: 38}, `  HITS  MISSED  PROBE          MECHAN…
120000       0  f.c:4 (a+0x9)  optimi…
     7       1  lib.so:a       optimi…
     7       0  b              booste…
     1       0  bad\n          waiting
     0       3  late%return    int3
     0       0  idle           optimi…
`},
	} {
		got := counts(t, probes, c.o)
		if got != c.want {
			t.Errorf("%+v:\n%s\nwant\n%s", c.o, got, c.want)
		}
	}
}

func TestCountsTellHowManyAreNotOptimizedUnlessAllRowsDo(t *testing.T) {
	s := &Summary{Unoptimized: []Loss{{"there is no room\n", 7}, {"a", 5}, {"b", 4}, {"c", 3}, {"d", 2}, {"e", 2}, {"f", 1}}}
	for i := range 30 {
		s.Probes = append(s.Probes, ProbeSummary{Probe: fmt.Sprint("f", i)})
	}
	for _, c := range []struct {
		reasons int
		all     bool
		want    string
	}{
		{0, false, ""},
		{1, true, ""},
		{1, false, "7 of 30 probes: not optimized, a hit stops the thread: there is no room\\n\n"},
		{7, false, "d\n3 more are not optimized, for 2 other reasons\n"},
		{6, false, "d\n2 of 30 probes: not optimized, a hit stops the thread: e\n"},
	} {
		few := *s
		few.Unoptimized = s.Unoptimized[:c.reasons]
		var out countingWriter
		err := PrintCounts(&out, &few, CountOptions{All: c.all})
		if told := strings.Contains(out.String(), "not optimized"); err != nil || !strings.HasSuffix(out.String(), c.want) || told != (c.want != "") {
			t.Errorf("%d reasons: %v\n%s", c.reasons, err, &out)
		}
	}
}

func TestTwentyCountsArePrintedUnlessAllAreWanted(t *testing.T) {
	var probes []ProbeSummary
	for i := range 30 {
		probes = append(probes, ProbeSummary{Probe: fmt.Sprint("f", i), Symbol: fmt.Sprintf("f%d+0x0", i), Hits: uint64(max(0, i-4))})
	}
	for _, c := range []struct {
		probes []ProbeSummary
		all    bool
		lines  int
		last   string
	}{
		{probes, false, 22, "5 more probes were hit, 5 probes were not hit; -all-rows prints all"},
		{probes, true, 31, "     0       0  f4     "},
		{probes[5:], false, 22, "5 more probes were hit; -all-rows prints all"},
		{probes[9:], false, 22, "1 more probe was hit; -all-rows prints all"},
		{probes[10:], false, 21, "     6       0  f10    "},
		{probes[:5], false, 1, "5 probes were not hit; -all-rows prints all"},
	} {
		got := strings.Split(strings.TrimSuffix(counts(t, c.probes, CountOptions{All: c.all}), "\n"), "\n")
		if last := got[len(got)-1]; len(got) != c.lines || strings.Join(strings.Fields(last), " ") != strings.Join(strings.Fields(c.last), " ") {
			t.Errorf("%d lines, the last is %q; want %d, %q", len(got), last, c.lines, c.last)
		}
	}
}

func TestEveryRowOfCountsIsOneLineOfTheTerminal(t *testing.T) {
	long := strings.Repeat("größe::", 40)
	for _, columns := range []int{1, 10, 40, 80, 200} {
		out := counts(t, []ProbeSummary{{Probe: long, Symbol: long + "+0x0", Hits: 1}, {Probe: "f", Hits: 1}}, CountOptions{Columns: columns})
		if n := strings.Count(out, "\n"); n != 3 {
			t.Errorf("%d lines", n)
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("%d characters in %d columns: %q", n, columns, line)
			}
		}
	}
	if out := counts(t, []ProbeSummary{{Probe: long, Hits: 1}}, CountOptions{}); !strings.Contains(out, long) {
		t.Errorf("a name is cut where there is no terminal: %q", out)
	}
}

func TestCountsThatCanNotBeWrittenAreAnError(t *testing.T) {
	for _, w := range []interface{ Write([]byte) (int, error) }{&countingWriter{limit: 5}, &scriptedWriter{takes: []int{5}}} {
		if err := PrintCounts(w, &Summary{Probes: []ProbeSummary{{Probe: "f"}}}, CountOptions{}); err == nil {
			t.Errorf("%T: no error", w)
		}
	}
	var out bytes.Buffer
	if _ = PrintCounts(&out, &Summary{Lost: 2}, CountOptions{}); out.String() != "2 records could not be written\n" {
		t.Errorf("%q", out.String())
	}
}

func TestJSONTellsHowManyAreNotOptimized(t *testing.T) {
	var out countingWriter
	err := NewJSON(&out).Summary(&Summary{Unoptimized: []Loss{{"it is short", 7}, {"a", 1}}})
	if want := `,"unoptimized":[{"reason":"it is short","n":7},{"reason":"a","n":1}]}`; err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v, %s; want %s", err, &out, want)
	}
}

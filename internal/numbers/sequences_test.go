package numbers

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

var (
	//go:embed testdata/sequences.cc
	sequencesCXX string
	//go:embed testdata/sequences.rs
	sequencesRust string
	//go:embed testdata/sequences.go.txt
	sequencesGo string
)

// inCXXAll are expressions in sequences.cc, and what they are.
var inCXXAll = [][2]string{
	{"o.id", "17"}, {"o->id", "17"}, {"p.next->next.id", "17"}, {"n", "42"}, {"v", `"view"`}, {"len(v)", "4"},
	{"o.items[1].name", `"a name that is too long for the buffer"`}, {"o.items[1].kind", "-4"}, {"len(o.items)", "2"}, {"o.items[2].kind", "?"}, {"o.items[0].price", "2.5"},
	{"len(o.none)", "0"}, {"o.none", "{}"}, {"o.none[0]", "?"}, {"o.numbers", "{1, -2, 3, 4, 5, 6, 7, 8, … 10 in all}"}, {"o.numbers[9]", "10"}, {"o.numbers[10]", "?"},
	{"len(o.numbers)", "10"}, {"o.note", `"note"`}, {"len(o.note)", "4"}, {"o.note[3]", "101"}, {"o.own[1].name", `"ref"`}, {"len(o.own)", "2"}, {"o.ref.name", `"ref"`}, {"o.ref.c", "BLUE"},
	{"o.ref.bits", "5"}, {"o.ref.more", "-3"}, {"o.grid[1][2]", "6"}, {"o.grid[1]", "{4, 5, 6}"}, {"o.grid", "{{1, 2, 3}, {4, 5, 6}}"}, {"len(o.grid)", "2"}, {"len(o.grid[0])", "3"},
	{"b.a", "5"}, {"b.b", "3"}, {"b.c", "-2"}, {"b", "{a: 5, b: 3, c: -2}"}, {"r", "77"}, {"c", "GREEN"}, {"bad", "0xffffffffffffffff"}, {"f.text", `"flexible"`}, {"f->n", "8"}, {"f.text[4]", "105 'i'"},
	{"indirect->id", "17"}, {"indirect.next.note", `"note"`}, {"(*p).id", "17"}, {"p[0].note", `"note"`},
	{"o.own[1]", `{base: {kind: 3}, name: "ref", price: 2.5, c: BLUE, bits: 5, more: -3}`},
}

var inRustAll = [][2]string{
	{"o.id", "17"}, {"n", "42"}, {"o.items[1].name", `"second"`}, {"o.items[2].name", "?"}, {"len(o.items)", "2"}, {"len(o.none)", "0"}, {"o.none", "{}"}, {"o.note", `"note"`},
	{"len(o.note)", "4"}, {"o.tup.0", "-3"}, {"o.tup.1", "4"}, {"o.arr[1]", "-2"}, {"o.arr", "{1, -2, 3, 4}"}, {"o.boxed.name", `"boxed"`}, {"o.items[0].opt", "Some(7)"}, {"o.owner", `Some("owner")`}, {"o.nobody", "None"},
	{"o.items[0]", `{name: "first", qty: 5, opt: Some(7)}`}, {"len(o.items[1].name)", "6"},
}

var inGoAll = [][2]string{
	{"o.ID", "17"}, {"by.ID", "17"}, {"n", "42"}, {"o.Items[1].Name", `"second"`}, {"o.Items[2].Name", "?"}, {"by.Items[0].Qty", "1"}, {"len(o.Items)", "2"}, {"len(o.None)", "0"},
	{"len(o.Tags)", "3"}, {"len(o.Nil)", "0"}, {"len(nobody.Tags)", "(fault)"}, {"nobody.ID", "(fault)"}, {"len(o.Ch)", "1"}, {"o.Note", `"note"`}, {"o.Next.Next.Note", `"note"`}, {"len(by.Note)", "4"}, {"names[1]", `"yy"`}, {"names[2]", "?"},
	{"len(names)", "2"}, {"o.Grid[1][2]", "6"}, {"o.Note[0]", "110"}, {"o.Items[0]", `main.Item{Name: "first", Qty: 1}`}, {"by.Grid[0]", "{1, 2, 3}"},
}

// conditionsOf are a condition for each expression that can be compared, which holds, and one that does not.
func conditionsOf(all [][2]string) (hold, fail []string) {
	for _, x := range all {
		switch first := x[1][0]; {
		case strings.HasPrefix(x[1], "0x") || strings.Contains(x[1], "'"): // no number to conditions
		case x[1] == "?": // there is no such element: no comparison holds
			fail = append(fail, x[0]+" == 0", x[0]+" != 0", x[0]+` != "x"`)
		case first == '"':
			hold, fail = append(hold, x[0]+" == "+x[1]), append(fail, x[0]+" != "+x[1])
		case first == '-' || first >= '0' && first <= '9':
			hold, fail = append(hold, x[0]+" == "+x[1]), append(fail, x[0]+" > "+x[1])
		}
	}
	return hold, fail
}

// TestPathsLeadToTheSameValues: what the program has, named as its source does, in the target and where threads stop, and in conditions.
func TestPathsLeadToTheSameValues(t *testing.T) {
	for _, x := range []struct {
		maker
		source string
		all    [][2]string
		entry  string
	}{
		{maker{name: "g++", levels: [][]string{{"-g"}, {"-g", "-O2"}}, suffix: ".cc"}, sequencesCXX, inCXXAll, "handle"},
		{maker{name: "clang++", levels: [][]string{{"-g", "-std=c++17"}, {"-g", "-O2", "-std=c++17"}}, suffix: ".cc"}, sequencesCXX, inCXXAll, "handle"},
		{maker{name: "rustc", levels: [][]string{{"-g"}, {"-g", "-O"}}, suffix: ".rs"}, sequencesRust, inRustAll, "handle"},
		{maker{name: "go", levels: [][]string{{"-gcflags=-N -l"}, {}}, suffix: ".go"}, sequencesGo, inGoAll, "main.handle"},
	} {
		for _, flags := range x.levels {
			bin := x.compile(t, flags, x.source)
			for _, stops := range []bool{false, true} {
				hold, fail := conditionsOf(x.all)
				if x.suffix == ".cc" {
					hold, fail = append(hold, "o.ref.c == BLUE", "o.own[0].c != RED", "p != NULL", "p != nullptr"), append(fail, "o.ref.c == GREEN", "o.ref.c < BLUE", "p == NULL")
				}
				walk(t, bin, x.entry, x.all, hold, fail, stops)
			}
		}
	}
}

// walk compares the values that all have at one call, for which conditions hold or fail.
func walk(t *testing.T, bin, entry string, all [][2]string, hold, fail []string, stops bool, more ...trace.Want) {
	t.Helper()
	p := testprog.Start(t, bin)
	s, err := trace.Attach(t.Context(), p.PID(), trace.With(kprobes.Options{NoOptimize: stops}))
	if err != nil {
		t.Fatal(err)
	}
	values := make([]*trace.Probe, 0, len(all))
	for n := 0; n < len(all); n += 8 { // a record holds so many
		wants := append([]trace.Want{trace.AsInSource()}, more...)
		for _, x := range all[n:min(n+8, len(all))] {
			wants = append(wants, trace.Fetch(x[0]))
		}
		values = append(values, place(t, s, entry, wants...))
	}
	counts := map[string]*trace.Probe{}
	for _, cond := range append(hold, fail...) {
		if p, err := s.Probe(entry, trace.Count(), trace.If(cond)); err == nil {
			counts[cond] = p
		} else if !strings.Contains(cond, "?") && !strings.HasSuffix(cond, "0") && !strings.HasSuffix(cond, `"x"`) {
			t.Errorf("%s: %v", cond, err)
		}
	}
	p.Do("go", "done")
	for _, probe := range values {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	}
	got := map[string]string{}
	for _, probe := range values {
		for h := range probe.Hits() {
			for _, a := range h.Args {
				got[a.Name] = a.String()
			}
		}
	}
	for _, x := range all {
		if got[x[0]] != x[1] {
			t.Errorf("%s, stops: %t: %s is %s, not %s", bin, stops, x[0], got[x[0]], x[1])
		}
	}
	for i, cond := range append(hold, fail...) {
		want := uint64(1)
		if i >= len(hold) {
			want = 0
		}
		if counts[cond] != nil && counts[cond].Stats().Hits != want {
			t.Errorf("%s, stops: %t: %s has %d hits, not %d", bin, stops, cond, counts[cond].Stats().Hits, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

func place(t *testing.T, s *trace.Session, entry string, wants ...trace.Want) *trace.Probe {
	t.Helper()
	p, err := s.Probe(entry, wants...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

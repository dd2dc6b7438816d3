package numbers

import (
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

var (
	//go:embed testdata/callers.c
	callersC string
	//go:embed testdata/callers.go.txt
	callersGo string
)

// TestTheCallerIsTheOneThatStacksHave at entries and returns, in the target and where threads stop, in values and in conditions.
func TestTheCallerIsTheOneThatStacksHave(t *testing.T) {
	for _, x := range []struct {
		maker
		source, prefix string
		want           []string // callers in their order
		signal         string   // a function that a signal calls
	}{
		{maker{name: "gcc", levels: [][]string{{"-g", "-O2"}, {"-O2", "-static"}}, suffix: ".c"}, callersC, "", []string{"one", "two", "two", "on"}, "on"},
		{maker{name: "go", levels: [][]string{{}}, suffix: ".go"}, callersGo, "main.", []string{"main.one", "main.two", "main.two", "main.main"}, ""},
	} {
		for _, flags := range x.levels {
			bin := x.compile(t, flags, x.source)
			for _, options := range []kprobes.Options{{}, {NoOptimize: true}, {Returns: kprobes.ReturnRewrite}} {
				callers(t, bin, x.prefix, x.want, x.signal, options)
			}
		}
	}
}

func callers(t *testing.T, bin, prefix string, want []string, signal string, options kprobes.Options) {
	t.Helper()
	p := testprog.Start(t, bin)
	s, err := trace.Attach(t.Context(), p.PID(), trace.With(options))
	if err != nil {
		t.Fatal(err)
	}
	entry, back := prefix+"handle", prefix+"handle%return"
	stack := place(t, s, entry, trace.Stack(2))
	shown := map[string]*trace.Probe{"entry": place(t, s, entry, trace.Fetch("c=caller")), "return": place(t, s, back, trace.Fetch("c=caller")), "by stops": place(t, s, entry, trace.Fetch("c=caller"), trace.Stack(2))}
	counts := map[string]int{"": 0}
	probes := map[string]*trace.Probe{}
	for _, spec := range []string{entry, back} {
		for cond, n := range map[string]int{`caller == "` + prefix + `one"`: 1, `caller == '` + prefix + `two'`: 2, `caller != "` + prefix + `one"`: 3, `caller == "` + prefix + `handle"`: 0, `caller == "` + prefix + `[ot][nw][eo]"`: 3, "caller.function == " + prefix + "two": 2} {
			for _, w := range []trace.Want{trace.Count(), trace.Fetch("n=caller")} {
				key := spec + " " + cond + strings.Repeat(" ", len(probes))
				probes[key], counts[key] = place(t, s, spec, trace.If(cond), w), n
			}
		}
	}
	if signal != "" {
		shown["signal"] = place(t, s, signal, trace.Fetch("c=caller"), trace.Stack(2))
	}
	for spec, note := range map[string]string{entry + "+0x1": "-stack 2", entry: "Function not found"} {
		var wrong *caret.Error
		if _, err := s.Probe(spec, trace.If(`caller == "nobody"`)); !errors.As(err, &wrong) || !strings.Contains(wrong.Text+wrong.Note, note) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	p.Do("go", "done")
	var stacks []string
	for _, probe := range slices.AppendSeq([]*trace.Probe{stack}, maps.Values(shown)) {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	}
	for h := range stack.Hits() {
		stacks = append(stacks, h.Stack[1].Symbol)
	}
	for i, name := range want {
		if i >= len(stacks) || !strings.HasPrefix(stacks[i], name+"+0x") {
			t.Fatalf("the stacks have %q", stacks)
		}
	}
	for what, probe := range shown {
		var got []string
		for h := range probe.Hits() {
			got = append(got, h.Args[0].String())
			if len(h.Stack) > 1 && h.Stack[1].Symbol != h.Args[0].String() {
				t.Errorf("%s %+v: the caller is %s, in the stack %s", bin, options, h.Args[0], h.Stack[1].Symbol)
			}
		}
		if what != "signal" && !slices.Equal(got, stacks) || len(got) == 0 {
			t.Errorf("%s %+v: %s: %q, not %q", bin, options, what, got, stacks)
		}
	}
	for key, probe := range probes {
		if n := probe.Stats().Hits; n != uint64(counts[key]) {
			t.Errorf("%s %+v: %s: %d hits, not %d", bin, options, key, n, counts[key])
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// TestChildrenThatExecuteOtherProgramsAreFollowed, however they are made: the SPEC stands for what has that name there, with its own types, by records and by stops.
func TestChildrenThatExecuteOtherProgramsAreFollowed(t *testing.T) {
	spawned := testprog.Build(t, "spawned")
	for _, c := range []struct {
		spec   string
		wants  []trace.Want
		parent string // V is the argument, D twice, T three times and H half of it
		child  string // empty for an address, which differs
	}{
		{"foo", []trace.Want{trace.Args()}, "foo(v=V)", `foo(name="name", v=V, half=H)`},
		{"foo", []trace.Want{trace.Fetch("n=$arg1:s64")}, "foo(n=V)", ""},
		{"foo", []trace.Want{trace.Fetch("v=v")}, "foo(v=V)", "foo(v=V)"},
		{"foo", []trace.Want{trace.Fetch("v=v:s16"), trace.If("v > 0")}, "foo(v=V)", "foo(v=V)"},
		{"foo%return", []trace.Want{trace.Args()}, "foo(v=V) = T", `foo(name="name", v=V, half=H) = D`},
		{"foo%return", nil, "foo() = T", "foo() = D"},
	} {
		for _, opts := range []kprobes.Options{{Follow: true}, {Follow: true, NoOptimize: true}} {
			p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
			s := attach(t, p, trace.With(opts))
			pr := probe(t, s, c.spec, c.wants...)
			var want []string
			for i, how := range []string{"fork", "vfork", "spawn", "shell", "grandchild", "parent"} {
				v := 10 + i
				p.Do(fmt.Sprintf("%s %d", how, v), fmt.Sprintf("child %d", 2*v))
				r := strings.NewReplacer("V", fmt.Sprint(v), "D", fmt.Sprint(2*v), "T", fmt.Sprint(3*v), "H", fmt.Sprint(float64(v)/2))
				want = append(want, r.Replace(c.parent), r.Replace(c.child))
			}
			got := take(pr, len(want))
			for i := range want {
				if want[i] != "" && (i >= len(got) || got[i] != want[i]) {
					t.Errorf("%s, %+v: got %q, want %q", c.spec, opts, got, want)
					break
				}
			}
			if st := pr.Stats(); st.Hits != uint64(len(want)) || st.Missed+st.Lost != 0 {
				t.Errorf("%s, %+v: %+v", c.spec, opts, st)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			p.CheckClean()
			p.Quit()
		}
	}
}

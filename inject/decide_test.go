package inject_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
)

// expected is what the fixture says of "run n" if the calls that meet the condition are decided by a.
func expected(t *testing.T, a fault.Attr, n int, meets func(n int) bool) string {
	t.Helper()
	d, err := fault.New(a)
	if err != nil {
		t.Fatal(err)
	}
	text, failed := "", 0
	for i := 1; i <= n; i++ {
		if meets != nil && !meets(i) {
			continue
		}
		if d.Decide(fault.Call{Size: 1, Task: true, Now: time.Now()}).Fail {
			text += fmt.Sprintf(" %d", i)
			failed++
		}
	}
	return fmt.Sprintf("failed %d:%s", failed, text)
}

// deciders are who may decide about a call.
var deciders = []struct {
	name string
	opts kprobes.Options
	also string // joined to the condition: always met, but only the tracer can tell
	want string // PlaceStats.Decides, where there is something to decide
}{
	{"the target", kprobes.Options{}, "", "target"},
	{"the interpreter", kprobes.Options{NoOptimize: true}, "", "tracer"},
	{"the tracer", kprobes.Options{}, `comm ~ "fails*"`, "tracer"},
	{"the tracer at breakpoints", kprobes.Options{NoOptimize: true}, `comm ~ "fails*"`, "tracer"},
}

func TestTheSameCallsFailWhoeverDecides(t *testing.T) {
	odd := func(n int) bool { return n&1 != 0 }
	isA := func(n int) bool { return n%3 == 0 }
	for _, by := range deciders {
		b := on(t, by.opts)
		for _, c := range []struct {
			attr, cond string
			meets      func(int) bool
		}{
			{attr: "probability=0"},
			{attr: "probability=100"},
			{attr: "probability=10% seed=7"},
			{attr: "probability=1/3 seed=18446744073709551615"},
			{attr: "probability=50% seed=1 times=5"},
			{attr: "interval=7"},
			{attr: "interval=7 times=0"},
			{attr: "interval=7 times=1"},
			{attr: "space=10 interval=3"},
			{attr: "space=1"},
			{attr: "when=5"},
			{attr: "when=3+2"},
			{attr: "when=3..20+4"},
			{attr: "when=10+"},
			{attr: "fail-nth=9 probability=0"},
			{attr: "when=2+3 interval=2 probability=50% seed=3 space=4"},
			{attr: "interval=4", cond: "n & 1", meets: odd},
			{attr: "probability=25% seed=5", cond: `name == "a.conf"`, meets: isA},
			{attr: "when=2+2 probability=50% seed=5", cond: `n & 1 && name ~ "a*"`, meets: func(n int) bool { return odd(n) && isA(n) }},
			{attr: "times=3", cond: "!(n < 50)", meets: func(n int) bool { return n >= 50 }},
		} {
			a := attr(t, strings.Fields(c.attr)...)
			cond := strings.Join(slices.DeleteFunc([]string{c.cond, by.also}, func(s string) bool { return s == "" }), " && ")
			f := b.add(inject.Rule{Spec: "work", Attr: a, If: cond, Do: enoent})
			b.s.WaitForOptimizer(t.Context())
			decides := f.Stats().Places[0].Decides
			want := expected(t, a, 100, c.meets)
			if got := b.Do("run 100", "failed"); got != want {
				t.Errorf("%s, %s, if %s: %s, want %s", by.name, c.attr, cond, got, want)
			}
			s := f.Stats()
			if n := uint64(strings.Count(want, " ") - 1); s.Injected != n || s.Refused != 0 || s.Missed != 0 || s.Eligible < n || s.Calls < s.Eligible {
				t.Errorf("%s, %s: %+v, want %d injected", by.name, c.attr, s, n)
			}
			want = by.want
			if strings.Contains(cond, "~") {
				want = "tracer" // a glob is not looked at in the target
			}
			if static, err := a.Static(); err == nil && len(static.Steps) > 0 && decides != want {
				t.Errorf("%s, %s: the %s decides", by.name, c.attr, decides)
			}
			if err := f.Remove(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEligibleCallsAreThoseThatMeetTheCondition(t *testing.T) {
	for _, by := range deciders {
		b := on(t, by.opts)
		cond := "n & 1"
		if by.also != "" {
			cond += " && " + by.also
		}
		f := b.add(inject.Rule{Spec: "work", Attr: attr(t, "interval=10"), If: cond, Do: enoent})
		b.Do("run 100", "failed")
		if s := f.Stats(); s.Calls != 100 || s.Eligible != 50 || s.Injected != 5 {
			t.Errorf("%s: %+v", by.name, s)
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
		if s := f.Stats(); s.Calls != 100 || s.Eligible != 50 || s.Injected != 5 {
			t.Errorf("%s: after its end %+v", by.name, s)
		}
	}
}

func TestTheSameSeedGivesTheSameEventsTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, by := range deciders {
		for range 2 {
			b := on(t, by.opts)
			b.add(inject.Rule{Spec: "work", Attr: attr(t, "probability=20%", "seed=42"), If: by.also, Args: []string{"n=$arg1:s64", "name=+0($arg2):string"},
				Do: []inject.Action{inject.Return{Errno: 5, Fails: true}, inject.Delay{D: 1000, Jitter: 1000}}})
			b.Do("run 200", "failed")
			var list strings.Builder
			for _, e := range b.events {
				fmt.Fprintln(&list, e.N, e.Place, e.What, e.Values)
			}
			seen[list.String()] = true
		}
	}
	if len(seen) != 1 {
		t.Errorf("%d different lists: %v", len(seen), seen)
	}
	for list := range seen {
		if n := strings.Count(list, "\n"); n < 20 || n > 60 {
			t.Errorf("%d events: %s", n, list)
		}
	}
}

func TestCountsAreExactUnderThreads(t *testing.T) {
	const threads, each = 8, 2000
	chance := attr(t, "probability=1%", "seed=11")
	for _, c := range []struct {
		attr fault.Attr
		want string
	}{
		{attr(t, "interval=100"), fmt.Sprintf("failed %d of %d", threads*each/100, threads*each)},
		{attr(t, "times=7"), fmt.Sprintf("failed 7 of %d", threads*each)},
		{attr(t, "interval=10", "times=25"), fmt.Sprintf("failed 25 of %d", threads*each)},
		{chance, fmt.Sprintf("failed %d of %d", strings.Count(expected(t, chance, threads*each, nil), " ")-1, threads*each)},
		{attr(t, "interval=100", "per-thread=Y"), fmt.Sprintf("failed %d of %d", threads*each/100, threads*each)},
	} {
		for _, by := range deciders[:3] {
			b := on(t, by.opts)
			b.add(inject.Rule{Spec: "work", Attr: c.attr, If: by.also, Do: enoent})
			if got := b.Do(fmt.Sprintf("threads %d %d", threads, each), "failed"); got != c.want {
				t.Errorf("%s, %v: %s, want %s", by.name, c.attr, got, c.want)
			}
		}
	}
}

// TestPlacesOfARuleCountTogether: all calls of them are one sequence, whoever decides.
func TestPlacesOfARuleCountTogether(t *testing.T) {
	for _, by := range deciders {
		b := on(t, by.opts)
		for _, words := range []string{"when=3+4", "interval=3", "space=5 when=2+ probability=50% seed=4", "probability=50% seed=9 times=1000"} {
			a := attr(t, strings.Fields(words)...)
			f := b.add(inject.Rule{Spec: "first_caller", Specs: []string{"second_caller"}, Attr: a, If: by.also, Do: enoent})
			b.s.WaitForOptimizer(t.Context())
			d, err := fault.New(a)
			if err != nil {
				t.Fatal(err)
			}
			const calls = 200
			var failed [2]int
			for i := range 2 * calls { // first, second, first, second …
				if d.Decide(fault.Call{Size: 1, Now: time.Now()}).Fail {
					failed[i%2]++
				}
			}
			if got, want := b.Do(fmt.Sprintf("nested %d", calls), "nested"), fmt.Sprintf("nested %d %d", failed[0], failed[1]); got != want {
				t.Errorf("%s, %s: %s, want %s", by.name, words, got, want)
			}
			s := f.Stats()
			if s.Calls != 2*calls || s.Eligible != d.Eligible() || s.Injected != uint64(failed[0]+failed[1]) || len(s.Places) != 2 {
				t.Errorf("%s, %s: %+v", by.name, words, s)
			}
			for _, p := range s.Places {
				if p.Decides != by.want {
					t.Errorf("%s, %s: the %s decides at %s", by.name, words, p.Decides, p.Name)
				}
			}
			if err := f.Remove(); err != nil {
				t.Error(err)
			}
			if after := f.Stats(); after.Calls != s.Calls || after.Eligible != s.Eligible {
				t.Errorf("%s, %s: after its end %+v", by.name, words, after)
			}
		}
	}
}

// TestSeveralNamesOfAFunctionAreOnePlace: its calls are counted once.
func TestSeveralNamesOfAFunctionAreOnePlace(t *testing.T) {
	b := on(t, kprobes.Options{})
	f := b.add(inject.Rule{Specs: []string{"work", "fails:work"}, Attr: attr(t, "interval=2"), Do: enoent})
	b.Do("nested 10", "nested")
	if s := f.Stats(); len(s.Places) != 1 || s.Calls != 20 || s.Injected != 10 {
		t.Errorf("%+v", s)
	}
}

func TestStackFiltersLookAtCallers(t *testing.T) {
	for name, want := range map[string]string{"require": "nested 10 0", "reject": "nested 0 10"} {
		b := on(t, kprobes.Options{})
		found, err := b.s.Symbols().Resolve(t.Context(), "first_caller")
		if err != nil {
			t.Fatal(err)
		}
		r, _ := b.s.Symbols().Function(found[0].Addr)
		a := attr(t, name+"-start="+r.Start.String(), name+"-end="+r.End.String())
		b.add(inject.Rule{Spec: "work", Attr: a, Do: enoent})
		if got := b.Do("nested 10", "nested"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestSpaceIsTakenBySize(t *testing.T) {
	// 10 - 4 - 5 leaves 1, which is not more than 2; what is left stays.
	b := on(t, kprobes.Options{})
	b.add(inject.Rule{Spec: "sized", Attr: attr(t, "space=10"), Size: "$arg1", Do: enoent})
	if got := b.Do("sized 4 5 2 1 0 7", "sized"); got != "sized 0xd" { // 0 0 1 1 0 1: 1 is more than 0
		t.Error(got)
	}
}

func TestOnlyMarkedTasksFail(t *testing.T) {
	for _, marked := range []bool{true, false} {
		b := on(t, kprobes.Options{})
		asked := 0
		b.add(inject.Rule{Spec: "work", Attr: attr(t, "task-filter=Y"), Do: enoent, Task: func(pid, tid int) bool {
			asked++
			return marked && pid == b.PID() && tid == b.PID()
		}})
		want := map[bool]string{true: "failed 3: 1 2 3", false: "failed 0:"}[marked]
		if got := b.Do("run 3", "failed"); got != want || asked != 3 {
			t.Errorf("%s, want %s; asked %d times", got, want, asked)
		}
	}
}

func TestARateLimitsFailures(t *testing.T) {
	b := on(t, kprobes.Options{})
	f := b.add(inject.Rule{Spec: "work", Attr: attr(t, "rate=3/1h"), Do: enoent})
	if got := b.Do("run 50", "failed"); got != "failed 3: 1 2 3" {
		t.Error(got)
	}
	if s := f.Stats(); s.Calls != 50 || s.Injected != 3 || !f.Armed() {
		t.Errorf("%+v", s)
	}
}

func TestAFaultThatIsSpentIsDisarmed(t *testing.T) {
	for _, words := range [][]string{{"times=2"}, {"fail-nth=2", "probability=0"}, {"for=1ns"}} {
		b := on(t, kprobes.Options{})
		spent := make(chan struct{}, 2)
		in := inject.New(b.s, inject.Options{OneProcess: true, Spent: func(*inject.Fault) { spent <- struct{}{} }})
		f, err := in.Add(t.Context(), inject.Rule{Spec: "work", Attr: attr(t, words...), Do: enoent})
		if err != nil {
			t.Fatal(err)
		}
		if words[0] != "for=1ns" {
			b.Do("run 5", "failed")
		}
		<-spent
		if got := b.Do("run 5", "failed"); got != "failed 0:" {
			t.Errorf("%v: %s", words, got)
		}
		if s := f.Stats(); f.Armed() || s.Calls > 2 {
			t.Errorf("%v: armed %v, %+v", words, f.Armed(), s)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

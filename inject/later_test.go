package inject_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// coming is a target that loads libraries or executes programs, under injection.
type coming struct {
	*testprog.Prog
	t  *testing.T
	s  *kprobes.Session
	in *inject.Injector

	mu     sync.Mutex
	said   []string
	events []inject.Event
}

func comingTo(t *testing.T, p *testprog.Prog, opts kprobes.Options) *coming {
	t.Helper()
	c := &coming{Prog: p, t: t}
	opts.Log = testprog.ButUprobes(c.hear)
	var err error
	if c.s, err = kprobes.Attach(t.Context(), p.PID(), opts); err != nil {
		t.Fatal(err)
	}
	c.in = inject.New(c.s, inject.Options{Log: c.hear, Injected: func(e inject.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}})
	return c
}

func (c *coming) hear(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, text)
}

// heard is how many warnings have a text.
func (c *coming) heard(text string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.said {
		n += strings.Count(s, text)
	}
	return n
}

func (c *coming) add(r inject.Rule) *inject.Fault {
	c.t.Helper()
	f, err := c.in.Add(c.t.Context(), r)
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

// end ends all, in the order in which the command does.
func (c *coming) end() {
	c.t.Helper()
	if err := errors.Join(c.in.Close(), c.s.Close()); err != nil {
		c.t.Error(err)
	}
	c.CheckClean()
	c.Quit()
}

func plug(t *testing.T, flags ...string) (p *testprog.Prog, lib string) {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "modules", "-rdynamic")), testprog.Build(t, "libplug.so", append([]string{"-shared", "-fPIC"}, flags...)...)
}

// TestRulesPatternsWaitForTheirLibrary: the calls of all that comes are one sequence, with those of other SPECs, whoever decides. Each call is counted once, and
// counts go on when the library comes again.
func TestRulesPatternsWaitForTheirLibrary(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		for _, words := range [][]string{{"interval=2"}, {"interval=2", "per-thread=Y"}} {
			p, lib := plug(t)
			p.Do("open 0 "+lib, "did")
			p.Do("close 0", "did")
			before := testprog.TakeSnapshot(t, p.PID())
			c := comingTo(t, p, opts)
			f := c.add(inject.Rule{
				Specs: []string{"libplug.so:plugged", "libplug.so:[pc]*", "libplug.so:pl*"}, Attr: attr(t, words...), Args: []string{"v=$arg1"},
				If: "v >= 0", Do: actions(t, "retval 77"),
			})
			st := f.Stats()
			if len(st.Places) != 3 || !st.Places[1].Waiting || st.Places[1].Name != "libplug.so:[pc]*" || st.Places[1].Reason != "libplug.so is not loaded yet" {
				t.Errorf("%+v", st)
			}
			if c.heard("probe libplug.so:[pc]* waits: libplug.so is not loaded yet") != 1 {
				t.Errorf("%q", c.said)
			}
			n := 0
			fails := func() bool { n++; return n%2 == 0 }
			plugged := func(v int) int {
				if fails() {
					return 77
				}
				return 29*v + 1
			}
			calls := func(v int) int {
				if fails() {
					return 77
				}
				return plugged(v) + plugged(v+1)
			}
			for range 3 {
				p.Do("open 0 "+lib, "did")
				want := plugged(0) + plugged(1) + plugged(2)
				if got := p.Do("call 0 plugged 3", "did"); got != fmt.Sprintf("did %d", want) {
					t.Errorf("%s, want %d", got, want)
				}
				want = calls(0) + calls(1)
				if got := p.Do("call 0 calls 2", "did"); got != fmt.Sprintf("did %d", want) {
					t.Errorf("%s, want %d", got, want)
				}
				p.Do("close 0", "did")
			}
			st = f.Stats()
			if st.Calls != uint64(n) || st.Eligible != uint64(n) || st.Injected != uint64(n/2) || st.Missed+st.Refused != 0 || len(c.events) != n/2 || f.Skipped() != "" {
				t.Errorf("%+v, want %d calls", st, n)
			}
			if names := placeNames(st); !slices.Equal(names, []string{"libplug.so:plugged", "calls"}) || st.Actions[0] != (inject.ActionStats{Action: "return 77", N: uint64(n / 2)}) {
				t.Errorf("%q, %+v", names, st.Actions)
			}
			for i, e := range c.events {
				if e.N != uint64(i+1) || e.Module != "libplug.so" || len(e.Values) != 1 {
					t.Errorf("%+v", e)
				}
			}
			if why, gone := f.Gone(); gone {
				t.Error(why)
			}
			if len(c.said) != 3 {
				t.Errorf("%q", c.said)
			}
			if err := errors.Join(c.in.Close(), c.s.Close()); err != nil {
				t.Error(err)
			}
			before.Compare(t, p.PID())
			p.CheckClean()
			p.Quit()
		}
	}
}

func placeNames(st inject.Stats) (names []string) {
	for _, at := range st.Places {
		names = append(names, at.Name)
	}
	return names
}

// TestAFaultIsSwitchedWhileItsPatternWaits: what comes is as the fault is, whose times are for all that comes; what was removed places nothing.
func TestAFaultIsSwitchedWhileItsPatternWaits(t *testing.T) {
	p, lib := plug(t)
	c := comingTo(t, p, kprobes.Options{})
	do := actions(t, "retval 77")
	few := c.add(inject.Rule{Name: "few", Spec: "libplug.so:plug*", Attr: attr(t, "times=2"), Do: do})
	gone := c.add(inject.Rule{Name: "gone", Spec: "libplug.so:p*", Attr: fault.Always(), Do: do})
	if err := gone.Remove(); err != nil {
		t.Fatal(err)
	}
	if st := gone.Stats(); len(st.Places) != 1 || st.Places[0].Reason != "libplug.so is not loaded yet" {
		t.Errorf("a removed fault: %+v", st)
	}
	p.Do("open 0 "+lib, "did")
	if got := p.Do("call 0 plugged 3", "did"); got != "did 213" { // 77, 77, 59
		t.Error(got)
	}
	if st := few.Stats(); few.Armed() || st.Injected != 2 || gone.Stats().Calls != 0 || len(c.s.Probes()) != 1 {
		t.Errorf("%+v, %+v", st, c.s.Probes())
	}
	stopped := c.add(inject.Rule{Name: "stopped", Spec: "libother.so:o*", Attr: fault.Always(), Do: do, Stopped: true})
	p.Do("open 1 "+testprog.Build(t, "libother.so", "-shared", "-fPIC"), "did")
	own := p.Do("call 1 other 2", "did")
	for _, on := range []bool{true, false, true} {
		change, want := stopped.Stop, own
		if on {
			change, want = stopped.Start, "did 154"
		}
		if err := change(); err != nil {
			t.Error(err)
		}
		if got := p.Do("call 1 other 2", "did"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	c.end()
}

// TestAFaultIsSwitchedJustWhenItsLibraryComes: the places are as it is in the end, whatever came first.
func TestAFaultIsSwitchedJustWhenItsLibraryComes(t *testing.T) {
	p, lib := plug(t)
	c := comingTo(t, p, kprobes.Options{})
	for i := range 10 {
		f := c.add(inject.Rule{Spec: "libplug.so:[pc]*", Attr: fault.Always(), Do: actions(t, "retval 77"), Stopped: i%2 == 0})
		var wg sync.WaitGroup
		wg.Go(func() {
			change := f.Stop
			if i%2 == 0 {
				change = f.Start
			}
			if err := change(); err != nil {
				t.Error(err)
			}
		})
		p.Do("open 0 "+lib, "did")
		wg.Wait()
		want := "did 31"
		if i%2 == 0 {
			want = "did 154"
		}
		if got := p.Do("call 0 plugged 2", "did"); got != want {
			t.Errorf("round %d: %s, want %s", i, got, want)
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
		p.Do("close 0", "did")
	}
	c.end()
}

// TestWhatComesAndCanNotBeProbedIsToldOnce, and counted; what can never be is refused at once.
func TestWhatComesAndCanNotBeProbedIsToldOnce(t *testing.T) {
	p, lib := plug(t, "-DSPOILED")
	c := comingTo(t, p, kprobes.Options{})
	do := actions(t, "retval 77")
	some := c.add(inject.Rule{Name: "some", Spec: "libplug.so:[pw]*", Attr: fault.Always(), Do: do})
	none := c.add(inject.Rule{Spec: "libplug.so:zz*", Attr: fault.Always(), Do: do})
	for range 3 {
		p.Do("open 0 "+lib, "did")
		p.Do("close 0", "did")
	}
	if st := some.Stats(); len(st.Places) != 1 || st.Places[0].Name != "wreck" || st.Calls != 3 || !strings.HasSuffix(some.Skipped(), " (1)") {
		t.Errorf("%+v, skipped: %s", st, some.Skipped())
	}
	if n := c.heard("some: 1 of 2 places is not probed: "); n != 1 {
		t.Errorf("told %d times: %q", n, c.said)
	}
	if n := c.heard("probe libplug.so:zz* is not placed: unknown symbol"); n != 1 {
		t.Errorf("told %d times: %q", n, c.said)
	}
	if st := none.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting || !strings.Contains(st.Places[0].Reason, "unknown symbol") {
		t.Errorf("%+v", st)
	}
	p.Do("open 0 "+lib, "did")
	for _, r := range []inject.Rule{
		{Spec: "libplug.so:yy*"}, {Spec: "nolib:o*"}, {Spec: "libother.so:o*", Args: []string{"n=v"}}, {Spec: "libother.so:o*%return"},
	} {
		r.Attr, r.Do = fault.Always(), do
		want := map[string]string{"libplug.so:yy*": "unknown symbol", "nolib:o*": "unknown module", "libother.so:o*": "not loaded yet"}[r.Spec]
		if _, err := c.in.Add(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", r.Spec, err)
		}
	}
	if n := len(c.in.Faults()); n != 2 {
		t.Errorf("%d faults", n)
	}
	c.end()
}

// TestRulesPatternsWaitForPrograms: those that nothing of the target has, and those that have places for more of them.
func TestRulesPatternsWaitForPrograms(t *testing.T) {
	spawned := testprog.Build(t, "spawned", "-Dfoo=food")
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		opts.Follow, opts.AwaitPrograms = true, true
		p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
		c := comingTo(t, p, opts)
		later := c.add(inject.Rule{Spec: "food*", Attr: attr(t), Args: []string{"v=$arg2:s16"}, If: "v < 12", Do: actions(t, "retval 5")})
		more := c.add(inject.Rule{Spec: "foo*", Attr: attr(t), Handler: func(*inject.Call) bool { return true }})
		both := c.add(inject.Rule{Specs: []string{"foo", "f?o", "fo[o]*"}, Attr: attr(t), Handler: func(*inject.Call) bool { return true }})
		none := c.add(inject.Rule{Spec: "fooz*", Attr: attr(t), Do: actions(t, "retval 5")})
		if n := c.heard(" waits, no program has it yet: unknown "); n != 2 {
			t.Errorf("%q", c.said)
		}
		for i, how := range []string{"fork", "vfork", "spawn"} {
			v, want := 10+i, "child 5"
			if v >= 12 {
				want = fmt.Sprintf("child %d", 2*v)
			}
			if got := p.Do(fmt.Sprintf("%s %d", how, v), "child"); got != want {
				t.Errorf("%s: %s, want %s", how, got, want)
			}
		}
		found := []trace.Matches{{Module: "spawned", Places: 1}}
		if st := later.Stats(); st.Injected != 2 || st.Eligible != 2 || len(st.Places) != 1 || st.Places[0].Name != "food" || !sameFiles(st.Patterns, "food*", found) {
			t.Errorf("%+v", st)
		}
		if st := more.Stats(); st.Injected < 4 || len(st.Places) != 2 || !sameFiles(st.Patterns, "foo*", append(found, trace.Matches{Module: "spawner", Places: 1})) {
			t.Errorf("%+v", st)
		}
		if names := placeNames(both.Stats()); !slices.Contains(names, "food") || len(both.Stats().Patterns) != 2 {
			t.Errorf("two patterns for one place wait for more: %q, %+v", names, both.Stats().Patterns)
		}
		if st := none.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting || !sameFiles(st.Patterns, "fooz*", nil) {
			t.Errorf("%+v", st)
		}
		c.end()
	}
	p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
	c := comingTo(t, p, kprobes.Options{Follow: true})
	if _, err := c.in.Add(t.Context(), inject.Rule{Spec: "food*", Attr: attr(t), Do: actions(t, "retval 5")}); !errors.Is(err, symbols.ErrUnknownSymbol) {
		t.Errorf("%v, want ErrUnknownSymbol", err)
	}
	c.end()
}

// TestAFunctionOfTwoNamesIsCountedOnceInAProgram for which a rule waited, by both; and in another program, in which they are two functions, both are.
func TestAFunctionOfTwoNamesIsCountedOnceInAProgram(t *testing.T) {
	spawned := testprog.Build(t, "spawned", "-Dfoo=food", "-DALIAS=barf")
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		opts.Follow, opts.AwaitPrograms = true, true
		p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
		c := comingTo(t, p, opts)
		var rules []*inject.Fault
		for _, specs := range [][]string{{"foo[d]", "bar[f]"}, {"bar[f]", "foo[d]"}, {"food", "bar[f]"}, {"fo[o]d*", "barf"}, {"food", "barf"}, {"*[ar]rf", "bar?", "fo?d"}} {
			rules = append(rules, c.add(inject.Rule{Specs: specs, Attr: attr(t), Handler: func(*inject.Call) bool { return true }}))
		}
		const n = 4
		for i, how := range []string{"fork", "vfork", "spawn", "parent"} {
			if got, want := p.Do(fmt.Sprintf("%s %d", how, i), "child"), fmt.Sprintf("child %d", 2*i); got != want {
				t.Errorf("%s: %s, want %s", how, got, want)
			}
		}
		for _, f := range rules {
			if st := f.Stats(); st.Calls != n {
				t.Errorf("%s: %d calls, want %d: %+v", f.Name(), st.Calls, n, st.Places)
			}
		}
		c.end()
	}
}

// sameFiles compares where a pattern was found.
func sameFiles(all []trace.PatternStats, spec string, want []trace.Matches) bool {
	return len(all) == 1 && all[0].Spec == spec && slices.EqualFunc(all[0].Found, want, func(a, b trace.Matches) bool {
		return strings.HasPrefix(a.Module, b.Module) && a.Places == b.Places
	})
}

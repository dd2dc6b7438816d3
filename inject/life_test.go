package inject_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

func TestRulesThatMakeNoSenseArmNothing(t *testing.T) {
	b := on(t, kprobes.Options{})
	always := fault.Always()
	bad := always
	bad.Probability = 2
	retval := actions(t, "retval 0")
	shared, err := inject.NewDecider(always)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule inject.Rule
		is   error
		want string
	}{
		{inject.Rule{Attr: always, Do: retval}, inject.ErrNoPlace, ""},
		{inject.Rule{Spec: "work", Syscall: "read", Attr: always, Do: retval}, inject.ErrPlaces, ""},
		{inject.Rule{Spec: "work", Attr: always}, inject.ErrNothing, ""},
		{inject.Rule{Spec: "work", Attr: always, Do: []inject.Action{nil}}, inject.ErrNothing, ""},
		{inject.Rule{Spec: "work", Attr: always, Do: append(retval, retval...)}, inject.ErrReturns, ""},
		{inject.Rule{Spec: "work", Decider: shared, If: "n > 1", Do: retval}, inject.ErrShared, ""},
		{inject.Rule{Spec: "work", Decider: shared, After: true, Do: retval}, inject.ErrShared, ""},
		{inject.Rule{Syscall: "read", Decider: shared, Do: retval}, inject.ErrShared, ""},
		{inject.Rule{Spec: "work", Attr: bad, Do: retval}, nil, "probability"},
		{inject.Rule{Spec: "nosuch", Attr: always, Do: retval}, symbols.ErrUnknownSymbol, "nosuch"},
		{inject.Rule{Spec: "nosuch*", Attr: always, Do: retval}, symbols.ErrUnknownSymbol, "nosuch"},
		{inject.Rule{Spec: "work+*", Attr: always, Do: retval}, symbols.ErrBadSpec, "every instruction"},
		{inject.Rule{Specs: []string{"work", "nosuch"}, Attr: always, Do: retval}, symbols.ErrUnknownSymbol, "nosuch"},
		{inject.Rule{Spec: "work+0x3", Attr: always, Do: retval}, kprobes.ErrNotEntry, "at once"},
		{inject.Rule{Spec: "work+0x3", Attr: always, After: true, Do: actions(t, "delay 1ms")}, kprobes.ErrNotEntry, "to its end"},
		{inject.Rule{Spec: "work+0x3", Attr: always, Do: actions(t, "set $arg1=2")}, nil, "before its body"},
		{inject.Rule{Spec: "work", Attr: always, If: "nosuch == 1", Do: retval}, nil, "nosuch"},
		{inject.Rule{Spec: "work", Attr: always, If: "n ==", Do: retval}, nil, "filter n =="},
		{inject.Rule{Spec: "work", Attr: always, Args: []string{"x=%zz"}, Do: retval}, nil, "x=%zz"},
		{inject.Rule{Spec: "work", Attr: always, Args: []string{"x=$retval"}, Do: retval}, nil, "x=$retval"},
		{inject.Rule{Spec: "work", Attr: always, Size: "((", Do: retval}, nil, "argument (("},
		{inject.Rule{Spec: "work", Attr: always, Do: actions(t, "corrupt ((")}, nil, "argument (("},
		{inject.Rule{Spec: "both", Attr: always, Do: actions(t, "errno EIO")}, nil, "say which value"},
		{inject.Rule{Spec: "work", Attr: always, Do: []inject.Action{inject.Delay{}}}, nil, "more than 0"},
		{inject.Rule{Spec: "work", Attr: always, Do: []inject.Action{inject.Signal{Signal: 99}}}, nil, "no signal 99"},
		{inject.Rule{Spec: "work", Attr: always, MaxActive: -1, After: true, Do: retval}, nil, "-1 calls"},
	} {
		good := inject.Rule{Spec: "fill", Attr: always, Do: retval}
		fs, err := b.in.AddAll(t.Context(), []inject.Rule{good, c.rule})
		var e *inject.RuleError
		if fs != nil || !errors.As(err, &e) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "__") {
			t.Errorf("%+v: %v", c.rule, err)
		}
		if n := len(b.s.Probes()); n != 0 {
			t.Errorf("%+v: %d probes are left", c.rule, n)
		}
	}
	if got := b.Do("run 3", "failed"); got != "failed 0:" {
		t.Error(got)
	}
}

func TestStopAndStart(t *testing.T) {
	b := on(t, kprobes.Options{})
	f := b.add(inject.Rule{Spec: "work", Attr: attr(t, "interval=2"), Do: enoent})
	for i, c := range []struct {
		do   func() error
		want string
	}{
		{nil, "failed 1: 2"}, // the third waits for the fourth
		{f.Stop, "failed 0:"},
		{f.Stop, "failed 0:"},
		{f.Start, "failed 2: 1 3"},
		{f.Start, "failed 1: 2"},
		{f.Remove, "failed 0:"},
		{f.Remove, "failed 0:"},
	} {
		if c.do != nil {
			if err := c.do(); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
		}
		if got := b.Do("run 3", "failed"); got != c.want {
			t.Errorf("step %d: %s, want %s", i, got, c.want)
		}
	}
	if err := f.Start(); err == nil {
		t.Error("a fault that has ended can be started")
	}
}

func TestAHandlerMayEndItsFault(t *testing.T) {
	for name, end := range map[string]func(*inject.Fault) error{"stop": (*inject.Fault).Stop, "remove": (*inject.Fault).Remove} {
		b := on(t, kprobes.Options{})
		b.add(inject.Rule{Spec: "work", Attr: fault.Always(), Do: enoent, Handler: func(c *inject.Call) bool {
			if c.N == 2 {
				if err := end(c.Fault()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			return true
		}})
		if got := b.Do("run 5", "failed"); got != "failed 2: 1 2" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestChildrenCountForThemselves(t *testing.T) {
	for _, by := range deciders[:3] {
		opts := by.opts
		opts.Follow = true
		b := on(t, opts)
		f := b.add(inject.Rule{Spec: "work", Attr: attr(t, "interval=5"), If: by.also, Do: enoent})
		if got := b.Do("run 7", "failed"); got != "failed 1: 5" {
			t.Errorf("%s: %s", by.name, got)
		}
		b.Send("child 12")
		if got := b.Expect("failed"); got != "failed 2: 5 10" {
			t.Errorf("%s: in the child %s", by.name, got)
		}
		b.Expect("joined")
		if got := b.Do("run 4", "failed"); got != "failed 1: 3" {
			t.Errorf("%s: in the parent again %s", by.name, got)
		}
		if s := f.Stats(); s.Injected != 4 || s.Eligible != 23 {
			t.Errorf("%s: %+v", by.name, s)
		}
	}
}

func TestChildrenThatAreNotFollowedAreLeftAlone(t *testing.T) {
	b := on(t, kprobes.Options{})
	b.add(inject.Rule{Spec: "work", Attr: fault.Always(), Do: enoent})
	b.Send("child 5")
	if got := b.Expect("failed"); got != "failed 0:" {
		t.Error(got)
	}
	b.Expect("joined")
}

func TestClosingWhileCallsFail(t *testing.T) {
	for i := range 6 {
		b := on(t, kprobes.Options{NoOptimize: i%2 == 1})
		b.in = inject.New(b.s, inject.Options{})
		f := b.add(inject.Rule{Spec: "work", Attr: attr(t, "interval=10"), Do: combined(t, "errno EIO", "delay 10us..50us")})
		after, err := b.in.Add(t.Context(), inject.Rule{Spec: "work", After: true, Attr: attr(t, "interval=7"), Do: actions(t, "delay 1us")})
		if err != nil {
			t.Fatal(err)
		}
		b.Send("threads 4 3000")
		for f.Stats().Injected < uint64(20*(i+1)) {
			if b.s.Exit() != nil {
				t.Fatal("the program has ended")
			}
		}
		if i%3 == 2 {
			if err := b.s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := b.in.Close(); err != nil {
			t.Error(err)
		}
		var failed, calls uint64
		if _, err := fmt.Sscanf(b.Expect("failed"), "failed %d of %d", &failed, &calls); err != nil || failed != f.Stats().Injected {
			t.Errorf("%d failed, %d were injected: %v", failed, f.Stats().Injected, err)
		}
		if s := after.Stats(); s.Refused != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestRulesShareADecider(t *testing.T) {
	b := on(t, kprobes.Options{})
	d, err := inject.NewDecider(attr(t, "interval=3", "times=2"))
	if err != nil {
		t.Fatal(err)
	}
	fs, err := b.in.AddAll(t.Context(), []inject.Rule{{Spec: "first_caller", Decider: d, Do: enoent}, {Spec: "second_caller", Decider: d, Do: enoent}})
	if err != nil {
		t.Fatal(err)
	}
	// the third call of both together is the first's, the sixth the second's
	if got := b.Do("nested 10", "nested"); got != "nested 1 1" || !fs[0].Armed() || !fs[1].Armed() {
		t.Error(got)
	}
}

// TestADecidersAttributesMayChange: what counts goes on, whoever does it, and the probes are off while no call can fail.
func TestADecidersAttributesMayChange(t *testing.T) {
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		b := on(t, opts)
		d, err := inject.NewDecider(attr(t, "interval=3"))
		if err != nil {
			t.Fatal(err)
		}
		rule := inject.Rule{Spec: "work", Decider: d, Do: enoent}
		f := b.add(rule)
		for i, c := range []struct {
			set     string // NAME=VALUE
			replace bool   // have the rule followed anew, though it need not be
			current bool   // the probes need not be replaced
			want    string // of five calls
			calls   uint64 // that were looked at since the fault began
		}{
			{"", false, true, "failed 1: 3", 5},
			{"verbose=1", false, true, "failed 2: 1 4", 10},
			{"times=1", true, true, "failed 1: 2", 2}, // then none is looked at
			{"times=-1", false, true, "failed 1: 3", 7},
			{"interval=2", false, false, "failed 2: 2 4", 5},
			{"probability=0", false, false, "failed 0:", 0},
			{"probability=100", false, false, "failed 2: 2 4", 5},
			{"space=3", false, false, "failed 1: 4", 5}, // the tracer counts
		} {
			d.Do(func(d *fault.Decider) {
				a := d.Attr()
				if name, value, ok := strings.Cut(c.set, "="); ok {
					err = errors.Join(a.Set(name, value), d.Update(a))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if f.Current() != c.current {
				t.Errorf("step %d, %s: current %v", i, c.set, f.Current())
			}
			if c.replace || !c.current {
				f, err = b.in.Replace(t.Context(), f, rule)
			} else {
				err = f.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			b.s.WaitForOptimizer(t.Context())
			if got := b.Do("run 5", "failed"); got != c.want {
				t.Errorf("step %d, %s: %s, want %s", i, c.set, got, c.want)
			}
			if s := f.Stats(); s.Calls != c.calls {
				t.Errorf("step %d, %s: %d calls, want %d", i, c.set, s.Calls, c.calls)
			}
		}
		if n := len(b.in.Faults()); n != 1 {
			t.Errorf("%d faults", n)
		}
	}
}

func TestAFunctionOfALibraryThatIsLoadedLater(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	p := testprog.Start(t, testprog.Build(t, "modules"))
	s, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := inject.New(s, inject.Options{})
	f, err := in.Add(t.Context(), inject.Rule{Spec: "libplug.so:plugged", Attr: attr(t, "interval=2"), Args: []string{"v=$arg1"}, Do: actions(t, "retval 77")})
	if err != nil {
		t.Fatal(err)
	}
	if st := f.Stats(); !st.Places[0].Waiting || st.Calls != 0 {
		t.Errorf("%+v", st)
	}
	p.Do("open 0 "+lib, "did")
	var said [3]string
	for i := range said {
		said[i] = p.Do("call 0 plugged 3", "did") // which calls it thrice
	}
	if said[0] == said[1] || said[0] != said[2] {
		t.Errorf("%q", said)
	}
	if st := f.Stats(); st.Places[0].Waiting || st.Calls != 9 || st.Eligible != 9 || st.Injected != 4 {
		t.Errorf("%+v", st)
	}
	// It may be stopped and started while the library is gone.
	p.Do("close 0", "did")
	if err := errors.Join(f.Stop(), f.Start()); err != nil {
		t.Error(err)
	}
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 3", "did")
	if st := f.Stats(); st.Calls != 12 || st.Injected != 6 {
		t.Errorf("%+v", st)
	}
	if err := errors.Join(in.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	p.CheckClean()
}

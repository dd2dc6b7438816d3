package inject_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/kprobes"
)

// member is a target whose injector reports spent faults, unlike on's.
func member(t *testing.T, opts kprobes.Options) (b *bench, spent chan *inject.Fault) {
	t.Helper()
	b = on(t, opts)
	return b, b.again()
}

// again is a further injector.
func (b *bench) again() (spent chan *inject.Fault) {
	t := b.t
	spent = make(chan *inject.Fault, 1)
	b.in = inject.New(b.s, inject.Options{
		Log:        func(m string) { t.Errorf("injector warns: %s", m) },
		Injected:   b.tell,
		Spent:      func(f *inject.Fault) { spent <- f },
		OneProcess: true,
	})
	return spent
}

// TestTimesAreForAllProcessesTogether, exactly, whoever decides and however many threads of them call at the same time.
func TestTimesAreForAllProcessesTogether(t *testing.T) {
	const times, threads, calls = 300, 4, 200
	for _, by := range deciders {
		var g inject.Group
		var benches []*bench
		var ends []chan *inject.Fault
		for range 3 {
			b, spent := member(t, by.opts)
			if _, err := g.Add(t.Context(), b.in, inject.Rule{Spec: "work", Attr: attr(t, "interval=3", fmt.Sprintf("times=%d", times)), If: by.also, Do: enoent}); err != nil {
				t.Fatal(err)
			}
			benches, ends = append(benches, b), append(ends, spent)
		}
		if g.Done() || !g.Armed() {
			t.Errorf("%s: done %v, armed %v", by.name, g.Done(), g.Armed())
		}
		for _, b := range benches {
			b.Send(fmt.Sprintf("threads %d %d", threads, calls))
		}
		sum := 0
		var failed []uint64
		for _, b := range benches {
			var n, of int
			if _, err := fmt.Sscanf(b.Expect("failed"), "failed %d of %d", &n, &of); err != nil {
				t.Fatal(err)
			}
			sum += n
			failed = append(failed, uint64(n))
		}
		for _, spent := range ends {
			<-spent
		}
		if sum != times || !g.Done() || g.Armed() {
			t.Errorf("%s: %d calls failed, done %v, armed %v", by.name, sum, g.Done(), g.Armed())
		}
		st := g.Stats()
		if st.Injected != times || len(st.Places) != 1 || st.Places[0].Calls != st.Calls || len(st.Actions) != 1 || st.Actions[0].N != times {
			t.Errorf("%s: %+v", by.name, st)
		}
		all := g.ByProcess()
		for i, b := range benches {
			if p := all[i]; p.PID != b.PID() || p.Comm != "fails" || p.Injected != failed[i] {
				t.Errorf("%s: process %d: %+v, %d failed", by.name, i, p, failed[i])
			}
		}
		// One that comes now is too late.
		b, spent := member(t, by.opts)
		if _, err := g.Add(t.Context(), b.in, inject.Rule{Spec: "work", Attr: attr(t, "interval=3", "times=7"), If: by.also, Do: enoent}); err != nil {
			t.Fatal(err)
		}
		<-spent
		if got := b.Do("run 9", "failed"); got != "failed 0:" {
			t.Errorf("%s: in one that came too late %s", by.name, got)
		}
	}
}

// TestProcessesOfAGroupCountForThemselves: the same calls of each fail, and one that leaves takes nothing with it.
func TestProcessesOfAGroupCountForThemselves(t *testing.T) {
	for _, by := range deciders {
		one, two := on(t, by.opts), on(t, by.opts)
		for _, c := range []struct {
			attr []string
			want string
			ends bool // in each process
		}{
			{[]string{"interval=4"}, "failed 2: 4 8", false},
			{[]string{"when=3+3"}, "failed 3: 3 6 9", false},
			{[]string{"space=7"}, "failed 4: 7 8 9 10", false},
			{[]string{"probability=30%", "seed=5"}, "", false},
			{[]string{"probability=0", "fail-nth=5"}, "failed 1: 5", true},
		} {
			var g inject.Group
			rule := inject.Rule{Spec: "work", Attr: attr(t, c.attr...), If: by.also, Do: enoent}
			oneSpent, twoSpent := one.again(), two.again()
			for _, b := range []*bench{one, two} {
				if _, err := g.Add(t.Context(), b.in, rule); err != nil {
					t.Fatal(err)
				}
			}
			first := one.Do("run 10", "failed")
			if c.ends {
				<-oneSpent
				if !g.Armed() {
					t.Errorf("%s, %v: the other process has ended too", by.name, c.attr)
				}
			}
			if err := one.in.Close(); err != nil {
				t.Error(err)
			}
			second := two.Do("run 10", "failed")
			if c.ends {
				<-twoSpent
			}
			if first != second || c.want != "" && first != c.want || first == "failed 0:" {
				t.Errorf("%s, %v: %q and %q, want %q", by.name, c.attr, first, second, c.want)
			}
			if got := one.Do("run 3", "failed"); got != "failed 0:" {
				t.Errorf("%s, %v: after the end %q", by.name, c.attr, got)
			}
			st, all := g.Stats(), g.ByProcess()
			if len(all) != 2 || all[0].Injected != all[1].Injected || st.Injected != 2*all[0].Injected || all[0].Calls == 0 ||
				len(st.Places) != 1 || st.Places[0].Calls != all[0].Calls+all[1].Calls || len(all[0].Places) != 1 {
				t.Errorf("%s, %v: %+v, %+v", by.name, c.attr, st, all)
			}
			if got := g.Faults(); len(got) != 1 || g.Done() || g.Armed() == c.ends {
				t.Errorf("%s, %v: %d faults, done %v, armed %v", by.name, c.attr, len(got), g.Done(), g.Armed())
			}
			if err := two.in.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestGroupsOfSystemCalls: both ways of seeing them.
func TestGroupsOfSystemCalls(t *testing.T) {
	for _, by := range []kprobes.SyscallWay{kprobes.SyscallBySites, kprobes.SyscallByStops} {
		var g inject.Group
		var benches []*bench
		var ends []chan *inject.Fault
		for range 2 {
			b, spent := member(t, kprobes.Options{})
			if _, err := g.Add(t.Context(), b.in, inject.Rule{Syscall: "openat", SyscallBy: by, Attr: attr(t, "when=2+", "times=3"), Do: enoent}); err != nil {
				t.Fatal(err)
			}
			benches, ends = append(benches, b), append(ends, spent)
		}
		var got []string
		for range 3 {
			for _, b := range benches {
				got = append(got, b.Do("open /dev/null", "open"))
			}
		}
		const well, not = "open 0 errno 0", "open -1 errno 2"
		if want := []string{well, well, not, not, not, well}; !slices.Equal(got, want) {
			t.Errorf("%v: %q", by, got)
		}
		for _, spent := range ends { // the one that has not used up the last is ended behind the call
			<-spent
		}
		if st := g.Stats(); st.Injected != 3 || g.Armed() {
			t.Errorf("%v: %+v", by, st)
		}
	}
}

func TestWhatCantBeInAGroup(t *testing.T) {
	b := on(t, kprobes.Options{})
	d, err := inject.NewDecider(attr(t))
	if err != nil {
		t.Fatal(err)
	}
	var g inject.Group
	if st := g.Stats(); st.Injected != 0 || g.Done() || g.Armed() || !g.Delayed().IsZero() {
		t.Errorf("an empty group has %+v", st)
	}
	var e *inject.RuleError
	for _, r := range []inject.Rule{{Spec: "work", Decider: d, Do: enoent}, {Spec: "nosuch", Attr: attr(t), Do: enoent}} {
		if _, err := g.Add(t.Context(), b.in, r); !errors.As(err, &e) || len(g.ByProcess()) != 0 {
			t.Errorf("%v: %v", r.Spec, err)
		}
	}
}

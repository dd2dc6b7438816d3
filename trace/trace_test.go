package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// logged collects warnings.
type logged struct {
	mu  sync.Mutex
	all []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// attach traces a fixture until the test ends.
func attach(t *testing.T, p *testprog.Prog, opts ...trace.Option) *trace.Session {
	t.Helper()
	s, err := trace.Attach(context.Background(), p.PID(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func prey(t *testing.T) *testprog.Prog {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "prey"))
}

// probe probes a place.
func probe(t *testing.T, s *trace.Session, spec string, wants ...trace.Want) *trace.Probe {
	t.Helper()
	p, err := s.Probe(spec, wants...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// take reads n hits, without what differs from run to run.
func take(p *trace.Probe, n int) (hits []string) {
	for h := range p.Hits() {
		h.Duration = nil
		if hits = append(hits, h.String()); len(hits) == n {
			break
		}
	}
	return hits
}

// stops is a session in which nothing is recorded in the target.
var stops = trace.With(kprobes.Options{NoOptimize: true})

// Whether the target records a hit or the tracer stops it, it is the same.
func TestHitsAreTheSameByRecordsAndByStops(t *testing.T) {
	for _, c := range []struct {
		spec  string
		wants []trace.Want
		calls []string
		want  []string
	}{
		{"foo", []trace.Want{trace.Args()}, []string{"foo 3", "foo -4"}, []string{"foo(v=3)", "foo(v=-4)"}},
		{"foo", []trace.Want{trace.Args(), trace.Fetch("n=$arg1:s32", "name=$comm")}, []string{"foo 3"}, []string{`foo(v=3, n=3, name="prey")`}},
		{"foo", []trace.Want{trace.Fetch("v=$arg1:u8"), trace.Args()}, []string{"foo 258"}, []string{"foo(v=2)"}},
		{"foo", []trace.Want{trace.Fetch("n=$arg1:s64"), trace.If("n < 0 || n == 7")}, []string{"foo 1", "foo 7", "foo -7", "foo 0"}, []string{"foo(n=7)", "foo(n=-7)"}},
		{"foo", []trace.Want{trace.Args(), trace.If("v == 7 && comm == 'prey'")}, []string{"foo 1", "foo 7"}, []string{"foo(v=7)"}},
		{"length", []trace.Want{trace.Fetch("s=+0($arg1):string", "c=+0($arg1):char[2]", "bad=+0(\\8):u32")}, []string{"string 1"}, []string{`length(s="test", c={'t','e'}, bad=(fault))`}},
		{"foo%return", nil, []string{"foo 3"}, []string{"foo() = 7"}},
		{"foo", []trace.Want{trace.Returns(), trace.Args(), trace.Fetch("r=$retval:s32", "n=$arg1:s32")}, []string{"foo -3"}, []string{"foo(v=-3, r=-5, n=-3) = -5"}},
		{"foo", []trace.Want{trace.Returns(), trace.If("ret > 10 && duration_ns > 0")}, []string{"foo 3", "foo 9"}, []string{"foo() = 19"}},
		{"six", []trace.Want{trace.Args(), trace.Also("sum6")}, []string{"six 1"}, []string{"six(v=1)", "sum6(a=1, b=2, c=3, d=4, e=5, f=6)"}},
	} {
		var counts [2]trace.Stats
		for i, opts := range [][]trace.Option{nil, {stops}} {
			p := prey(t)
			s := attach(t, p, opts...)
			pr := probe(t, s, c.spec, c.wants...)
			for _, call := range c.calls {
				p.Do("call "+call, "ret")
			}
			if got := take(pr, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("%s, %d: got %q, want %q", c.spec, i, got, c.want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if rest := take(pr, 1); rest != nil {
				t.Errorf("%s: %q more", c.spec, rest)
			}
			counts[i] = pr.Stats()
			p.CheckClean()
			p.Quit()
		}
		if counts[0].Hits != uint64(len(c.want)) || counts[1].Hits != counts[0].Hits || counts[0].Missed+counts[0].Lost+counts[1].Missed+counts[1].Lost != 0 {
			t.Errorf("%s: %+v, %+v", c.spec, counts[0], counts[1])
		}
	}
}

func TestAHitSaysWhoAndWhere(t *testing.T) {
	p := prey(t)
	pr := probe(t, attach(t, p), "foo", trace.Regs(), trace.Stack(2))
	p.Do("call foo 3", "ret")
	for h := range pr.Hits() {
		if h.PID != p.PID() || h.TID != p.PID() || !strings.HasPrefix(h.Comm, "prey") || h.Probe != "foo" || h.Kind != "kprobe" || h.Time.IsZero() ||
			!strings.HasPrefix(h.Symbol, "foo+0x") || !strings.HasPrefix(h.Module, "prey") || h.Ret != nil || h.Duration != nil {
			t.Errorf("%+v", h)
		}
		if v, ok := h.Arg("%rdi").Int(); !ok || v != 3 {
			t.Errorf("registers %v", h.Args)
		}
		if len(h.Stack) != 2 || h.Stack[0].Addr != h.Addr || !strings.HasPrefix(h.Stack[1].Symbol, "main+") || h.Stack[1].File != "prey.c" || h.Stack[1].Line == 0 {
			t.Errorf("stack %+v", h.Stack)
		}
		break
	}
}

func TestOnlyTheFirstHitOfAPlaceHasAStack(t *testing.T) {
	p := prey(t)
	pr := probe(t, attach(t, p), "six", trace.Also("foo"), trace.FirstStack("foo", 4))
	for _, call := range []string{"six 1", "foo 1", "foo 2"} {
		p.Do("call "+call, "ret")
	}
	var depths []int
	for h := range pr.Hits() {
		if depths = append(depths, min(len(h.Stack), 1)); len(depths) == 3 {
			break
		}
	}
	if !slices.Equal(depths, []int{0, 1, 0}) {
		t.Errorf("stacks of %v hits", depths)
	}
}

func TestCountsAreExact(t *testing.T) {
	for _, c := range []struct {
		wants []trace.Want
		hits  uint64
	}{
		{nil, 4000},
		{[]trace.Want{trace.Returns()}, 4000},
		{[]trace.Want{trace.Fetch("n=$arg1:s64"), trace.If("n < 10")}, 40},
		{[]trace.Want{trace.Returns(), trace.If("ret < 9")}, 16},
	} {
		p := prey(t)
		s := attach(t, p)
		pr := probe(t, s, "foo", append(c.wants, trace.Count())...)
		p.Do("threads 4 1000 foo", "sum")
		if st := pr.Stats(); st.Hits != c.hits || st.Missed != 0 || st.Places[0].Hits != c.hits {
			t.Errorf("%d: %+v", c.hits, st)
		}
		if got := take(pr, 1); got != nil {
			t.Errorf("%v", got)
		}
		p.Do("call foo 0", "ret")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := s.Counts(); len(got) != 1 || got[0].Hits != c.hits+1 || got[0].Place != "foo" || got[0].Mechanism == kprobes.NoMechanism {
			t.Errorf("%+v", got)
		}
		p.CheckClean()
		p.Quit()
	}
}

func TestALimitEndsTheHits(t *testing.T) {
	for _, wants := range [][]trace.Want{{trace.Limit(3)}, {trace.Limit(3), trace.Returns()}, {trace.Limit(3), trace.Count()}} {
		p := prey(t)
		pr := probe(t, attach(t, p), "foo", append(wants, trace.Also("six"))...)
		p.Do("threads 3 100 foo", "sum")
		p.Do("call six 1", "ret")
		<-pr.Full()
		n := 0
		for range pr.Hits() {
			n++
		}
		if st := pr.Stats(); st.Hits != 3 || n != 3 && n != 0 {
			t.Errorf("%d hits, %+v", n, st)
		}
	}
}

// A probe that is closed leaves the code as it was, while others go on.
func TestAProbeIsClosedForItself(t *testing.T) {
	p := prey(t)
	s := attach(t, p)
	first, second := probe(t, s, "foo"), probe(t, s, "target", trace.Returns(), trace.Args())
	p.Do("call foo 3", "ret")
	p.Do("call target 3", "ret")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	p.Do("call foo 4", "ret")
	p.Do("call target 6", "ret")
	if got := take(first, 2); fmt.Sprint(got) != "[foo()]" {
		t.Errorf("%q", got)
	}
	if got := take(second, 2); fmt.Sprint(got) != "[target(v=3) = 1 target(v=6) = 2]" {
		t.Errorf("%q", got)
	}
	if st := first.Stats(); st.Hits != 1 {
		t.Errorf("%+v", st)
	}
}

// Probes that share a queue put their hits there in their order.
func TestProbesShareAQueue(t *testing.T) {
	p := prey(t)
	s, q := attach(t, p), trace.NewQueue()
	probe(t, s, "foo", trace.To(q))
	probe(t, s, "target", trace.To(q), trace.Stack(1)) // by stops, beside records
	for range 50 {
		p.Do("call foo 3", "ret")
		p.Do("call target 3", "ret")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	q.Close()
	var order []string
	for batch := q.Take(); len(batch) > 0; batch = q.Take() {
		for i := range batch {
			order = append(order, batch[i].Probe)
		}
	}
	if got := strings.Join(order, " "); got != strings.TrimSpace(strings.Repeat("foo target ", 50)) {
		t.Error(got)
	}
}

// The end of the context is the end of the session, which leaves nothing.
func TestTheEndOfTheContextDetaches(t *testing.T) {
	p := prey(t)
	ctx, stop := context.WithCancel(context.Background())
	s, err := trace.Attach(ctx, p.PID())
	if err != nil {
		t.Fatal(err)
	}
	pr := probe(t, s, "foo")
	p.Do("call foo 3", "ret")
	stop()
	if got := take(pr, 2); fmt.Sprint(got) != "[foo()]" { // ends with the session
		t.Errorf("%q", got)
	}
	<-s.Done()
	if _, err := s.Probe("foo"); err == nil {
		t.Error("a session that has ended takes a probe")
	}
	p.CheckClean()
	p.Quit()
}

// A session that is traced on stays when the tracing ends.
func TestTracingOnASessionLeavesIt(t *testing.T) {
	p := prey(t)
	k, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	s := trace.On(k)
	pr := probe(t, s, "foo", trace.Count())
	p.Do("call foo 3", "ret")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Probe("foo"); !errors.Is(err, trace.ErrClosed) {
		t.Errorf("%v", err)
	}
	p.Do("call foo 3", "ret")
	if st := pr.Stats(); st.Hits != 1 || len(k.Probes()) != 0 {
		t.Errorf("%+v, %v", st, k.Probes())
	}
	again := probe(t, trace.On(k), "foo", trace.Count())
	p.Do("call foo 3", "ret")
	if st := again.Stats(); st.Hits != 1 {
		t.Errorf("%+v", st)
	}
}

func TestALibraryIsWaitedFor(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	p := testprog.Start(t, testprog.Build(t, "modules", "-rdynamic"))
	said := &logged{}
	s := attach(t, p, trace.Log(slog.New(said)))
	pr := probe(t, s, "libplug.so:plugged", trace.Args())
	if st := pr.Stats(); !st.Places[0].Waiting || !strings.Contains(said.String(), "waits: libplug.so is not loaded yet") {
		t.Errorf("%+v, %s", st, said)
	}
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 2", "did")
	for h := range pr.Hits() {
		if h.String() != "libplug.so:plugged(v=0)" || !strings.HasPrefix(h.Symbol, "plugged+0x") || h.Module != "libplug.so" {
			t.Errorf("%+v", h)
		}
		break
	}
	if why, gone := pr.Gone(); gone {
		t.Error(why)
	}
	p.Do("close 0", "did")
	if st := pr.Stats(); st.Hits != 2 || !st.Places[0].Waiting || st.Places[0].Reason != "libplug.so was unloaded" {
		t.Errorf("%+v", st)
	}
	p.Quit()
	<-s.Done()
}

// What can't be probed is refused as a whole, or skipped and told.
func TestWhatCanNotBeProbed(t *testing.T) {
	p := prey(t)
	said := &logged{}
	s := attach(t, p, trace.Log(slog.New(said)))
	for spec, want := range map[string]error{
		"none": symbols.ErrUnknownSymbol, "foo+0x1": kprobes.ErrNotBoundary, "foo+*%return": kprobes.ErrNotEntry, "none*": symbols.ErrUnknownSymbol, "1:2:3": nil,
	} {
		_, err := s.Probe(spec)
		var place *trace.PlaceError
		if !errors.As(err, &place) || place.Spec != spec || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, wants := range [][]trace.Want{{trace.Fetch("n=$arg1:s99")}, {trace.If("none == 1")}, {trace.Fetch("n=none")}} {
		var wrong *trace.WantError
		if _, err := s.Probe("foo", wants...); !errors.As(err, &wrong) || wrong.Place != "foo" {
			t.Errorf("%v", err)
		}
	}
	if got := s.Kprobes().Probes(); len(got) != 0 {
		t.Errorf("probes are left: %v", got)
	}
	pr := probe(t, s, "six", trace.Also("libc.so.6:__restore_rt+*", "foo+*"), trace.Count())
	p.Do("call six 1", "ret")
	if st := pr.Stats(); len(st.Places) < 4 || !strings.Contains(said.String(), " not probed: ") {
		t.Errorf("%+v\n%s", st, said)
	}
}

// A place of a pattern that is no function's entry has no return to follow: the others are followed.
func TestPatternsStandForTheirPlaces(t *testing.T) {
	p := prey(t)
	s := attach(t, p)
	pr := probe(t, s, "target*", trace.Returns())
	p.Do("call target 3", "ret")
	p.Do("call target2 3", "ret")
	if got := take(pr, 2); fmt.Sprint(got) != "[target() = 1 target2() = 2]" {
		t.Errorf("%q", got)
	}
	var names []string
	for _, at := range pr.Stats().Places {
		names = append(names, at.Place)
	}
	if slices.Sort(names); fmt.Sprint(names) != "[target target2]" {
		t.Errorf("%q", names)
	}
}

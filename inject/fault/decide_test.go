package fault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// attr returns the kernel's attributes with some of them set, as "name=value …".
func attr(t testing.TB, settings string) fault.Attr {
	t.Helper()
	a := fault.Default()
	for s := range strings.FieldsSeq(settings) {
		name, value, _ := strings.Cut(s, "=")
		if err := a.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func decider(t testing.TB, settings string) *fault.Decider {
	t.Helper()
	d, err := fault.New(attr(t, settings))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func call() fault.Call { return fault.Call{Process: 1, Thread: 1, Size: 1, Now: epoch} }

// letters are how the tables write decisions.
var letters = map[fault.Reason]string{
	"": "F", fault.ByFailNth: "n", fault.ByProbability: "p", fault.ByTaskFilter: "k", fault.ByTimes: "t", fault.ByFor: "f",
	fault.ByStack: "s", fault.BySpace: "b", fault.ByWhen: "w", fault.ByInterval: "i", fault.ByRate: "r",
}

// decisions writes a letter for each decision: F for one that fails, else what said no.
func decisions(d *fault.Decider, calls []fault.Call) string {
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(letters[d.Decide(c).By])
	}
	return b.String()
}

func repeat(n int, c fault.Call) []fault.Call {
	calls := make([]fault.Call, n)
	for i := range calls {
		calls[i] = c
	}
	return calls
}

// The rows are worked out from Documentation/fault-injection/fault-injection.rst and
// should_fail_ex; the items are those of the project's list of the kernel's semantics.
func TestDecisionsAreThoseOfTheKernelsDocuments(t *testing.T) {
	task := func(c fault.Call) fault.Call { c.Task = true; return c }
	big := func(c fault.Call) fault.Call { c.Size = 4; return c }
	frames := func(addrs ...uint64) fault.Call {
		c := call()
		c.Stack = func() []uint64 { return addrs }
		return c
	}
	for _, tt := range []struct {
		item, attr string
		calls      []fault.Call
		want       string
	}{
		{"H2: nothing fails before there is a probability", "", repeat(3, call()), "ppp"},
		{"H2: then one call, since times is 1", "probability=100", repeat(3, call()), "Ftt"},
		{"H4: while space > size it is used up", "probability=100 times=-1 space=4", repeat(5, call()), "bbbFF"},
		{"H4: space equal to size fails", "probability=100 times=-1 space=1", repeat(2, call()), "FF"},
		{"H4: by what the call takes", "probability=100 times=-1 space=9", repeat(4, big(call())), "bbFF"},
		{"H4: a small one leaves space for one more", "probability=100 times=-1 space=6", []fault.Call{big(call()), call(), call(), big(call())}, "bbFF"},
		{"H5: interval 0 is each", "probability=100 times=-1 interval=0", repeat(3, call()), "FFF"},
		{"H5: interval 1 is each", "probability=100 times=-1 interval=1", repeat(3, call()), "FFF"},
		{"H5: the counter begins before the first call", "probability=100 times=-1 interval=3", repeat(7, call()), "iiFiiFi"},
		{"H5: calls that space excludes do not advance it", "probability=100 times=-1 interval=2 space=3", repeat(6, call()), "bbiFiF"},
		{"H5: nor those of other tasks", "probability=100 times=-1 interval=2 task-filter=Y",
			[]fault.Call{task(call()), call(), call(), task(call()), task(call())}, "ikkFi"},
		{"H5: nor those whose stack is excluded", "probability=100 times=-1 interval=2 require-start=0x100 require-end=0x200",
			[]fault.Call{frames(0x100), frames(0x200), frames(0x1ff)}, "isF"},
		{"H6: 100 is always", "probability=100 times=-1", repeat(4, call()), "FFFF"},
		{"H7, H8: times counts failures, not calls", "probability=100 times=2 interval=2", repeat(6, call()), "iFiFtt"},
		{"H8: times 0", "probability=100 times=0", repeat(2, call()), "tt"},
		{"H3: probability 0 comes before the task filter", "task-filter=Y", repeat(1, call()), "p"},
		{"H3: the task filter before times", "probability=100 times=0 task-filter=Y", repeat(1, call()), "k"},
		{"H3: times before the stack", "probability=100 times=0 reject-start=1 reject-end=2", repeat(1, frames(1)), "t"},
		{"H3: the stack before space", "probability=100 space=9 reject-start=1 reject-end=2", repeat(1, frames(1)), "s"},
		{"H3: space before interval", "probability=100 space=9 interval=2", repeat(1, call()), "b"},
		{"H9: the default requires nothing", "probability=100 times=-1", repeat(1, frames()), "F"},
		{"H9: require: one frame inside", "probability=100 times=-1 require-start=0x10 require-end=0x20",
			[]fault.Call{frames(1, 0x10), frames(1, 0x20), frames(1, 2, 0x1f, 3)}, "FsF"},
		{"H9: reject: no frame inside", "probability=100 times=-1 reject-start=0x10 reject-end=0x20",
			[]fault.Call{frames(1, 0x10), frames(1, 0x20), frames(), frames(0xf, 0x1f)}, "sFFs"},
		{"H9: reject wins over require", "probability=100 times=-1 require-start=0x10 require-end=0x20 reject-start=0x18 reject-end=0x20",
			[]fault.Call{frames(0x11, 0x19), frames(0x11), frames(0x19, 0x11)}, "sFs"},
		{"H9: depth ends the search", "probability=100 times=-1 stacktrace-depth=2 require-start=0x10 require-end=0x20",
			[]fault.Call{frames(1, 0x10), frames(1, 2, 0x10)}, "Fs"},
		{"H9: depth 0 fails nothing that requires", "probability=100 times=-1 stacktrace-depth=0 require-start=0x10 require-end=0x20", repeat(1, frames(0x10)), "s"},
		{"H9: depth 0 rejects nothing", "probability=100 times=-1 stacktrace-depth=0 reject-start=0x10 reject-end=0x20", repeat(1, frames(0x10)), "F"},
		{"H9: a call without frames", "probability=100 times=-1 require-start=0x10 require-end=0x20", repeat(1, call()), "s"},
		{"H10: the N-th call fails with probability 0", "fail-nth=3", repeat(4, call()), "nnFp"},
		{"H10: and with times 0", "fail-nth=1 times=0 probability=100", repeat(2, call()), "Ft"},
		{"H10: it overrides the task filter, space and interval", "fail-nth=2 probability=100 times=-1 interval=2 space=3 task-filter=Y",
			[]fault.Call{call(), call(), call(), task(call()), task(call()), task(call()), task(call())}, "nFkbbiF"},
		{"H10: not the stack filter, which does not count", "fail-nth=2 reject-start=1 reject-end=2",
			[]fault.Call{frames(1), frames(3), frames(1), frames(3)}, "snsF"},
		{"H10, H7: it uses up times", "fail-nth=1 probability=100 times=2", repeat(3, call()), "FFt"},
		{"H11: only tasks that may", "probability=100 times=-1 task-filter=Y", []fault.Call{call(), task(call()), call()}, "kFk"},
		{"H12: interval, probability, space, times", "attr=2,100,3,2", repeat(8, call()), "bbiFiFtt"},
		{"strace when=F", "probability=100 times=-1 when=3", repeat(6, call()), "wwFwww"},
		{"strace when=F+", "probability=100 times=-1 when=3+", repeat(6, call()), "wwFFFF"},
		{"strace when=F+S", "probability=100 times=-1 when=3+2", repeat(8, call()), "wwFwFwFw"},
		{"strace when=F..L", "probability=100 times=-1 when=2..4", repeat(6, call()), "wFFFww"},
		{"strace when=F..L+S", "probability=100 times=-1 when=2..6+3", repeat(9, call()), "wFwwFwwww"},
		{"when counts behind space", "probability=100 times=-1 when=2 space=3", repeat(6, call()), "bbwFww"},
		{"interval counts behind when", "probability=100 times=-1 when=2+2 interval=2", repeat(8, call()), "wiwFwiwF"},
	} {
		if got := decisions(decider(t, tt.attr), tt.calls); got != tt.want {
			t.Errorf("%s\n%s: %s, want %s", tt.item, tt.attr, got, tt.want)
		}
	}
}

func TestRateAndTimeLimitFailures(t *testing.T) {
	at := func(ms ...int) (calls []fault.Call) {
		for _, ms := range ms {
			c := call()
			c.Now = epoch.Add(time.Duration(ms) * time.Millisecond)
			calls = append(calls, c)
		}
		return calls
	}
	for _, tt := range []struct {
		attr  string
		calls []fault.Call
		want  string
	}{
		{"probability=100 times=-1 rate=2/s", at(0, 1, 2, 999, 1000, 1000, 1001, 1002, 5000, 5001, 5999, 6000), "FFrrFrFrFFrF"},
		{"probability=100 times=3 rate=1/s", at(0, 1, 1000, 1001, 2000, 2001), "FrFrFt"}, // those beyond the rate are no failures
		{"probability=100 times=-1 for=1s", at(0, 999, 1000, 1001), "FFff"},
		{"probability=100 times=-1 for=1s interval=2", at(0, 999, 1000), "iFf"},
		{"fail-nth=2 for=1s", at(0, 1000), "nf"}, // no failure comes late
	} {
		if got := decisions(decider(t, tt.attr), tt.calls); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.attr, got, tt.want)
		}
	}
	d := decider(t, "probability=100 times=-1 for=1s")
	d.Start(epoch)
	if got := decisions(d, at(900, 1000)); got != "Ff" {
		t.Errorf("the time runs from Start: %s, want Ff", got)
	}
}

func TestCountersAreAProcessesOrAThreads(t *testing.T) {
	var calls []fault.Call
	for _, id := range [][2]int{{1, 1}, {1, 2}, {2, 3}, {1, 1}, {2, 3}, {1, 2}} {
		c := call()
		c.Process, c.Thread = id[0], id[1]
		calls = append(calls, c)
	}
	for _, tt := range []struct{ attr, want string }{
		{"probability=100 times=-1 interval=2", "iFiiFF"},
		{"probability=100 times=-1 interval=2 per-thread=Y", "iiiFFF"},
		{"probability=100 times=-1 space=2", "bFbFFF"},
		{"probability=100 times=1 interval=2", "iFtttt"}, // times is common to all
		{"fail-nth=2", "nFnpFp"},
		{"fail-nth=2 per-thread=Y", "nnnFFF"},
	} {
		if got := decisions(decider(t, tt.attr), calls); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.attr, got, tt.want)
		}
	}
	d := decider(t, "probability=100 times=-1 interval=2")
	if got := decisions(d, repeat(1, call())); got != "i" {
		t.Error(got)
	}
	d.Forget(1)
	if d.Eligible() != 1 {
		t.Errorf("%d calls were eligible, want 1", d.Eligible())
	}
	if got := decisions(d, repeat(2, call())); got != "iF" {
		t.Errorf("a process with a number that was forgotten: %s, want iF", got)
	}
}

func TestFailNthOfAThread(t *testing.T) {
	d := decider(t, "")
	d.SetFailNth(7, 2)
	other, mine := call(), call()
	mine.Thread = 7
	if got := decisions(d, []fault.Call{other, mine}); got != "pn" || d.FailNth(7) != 1 {
		t.Errorf("%s, %d left, want pn and 1", got, d.FailNth(7))
	}
	if d.Done(epoch) {
		t.Error("done with a call that will fail")
	}
	if got := decisions(d, []fault.Call{other, mine, mine}); got != "pFp" || d.FailNth(7) != 0 || d.FailNth(1) != 0 {
		t.Errorf("%s, %d left, want pFp and 0", got, d.FailNth(7))
	}
	if !d.Done(epoch) {
		t.Error("not done")
	}
	d.SetFailNth(7, 1)
	d.SetFailNth(7, 0)
	if got := decisions(d, []fault.Call{mine}); got != "p" {
		t.Errorf("taken back: %s, want p", got)
	}
}

// N is what When and the lists of injected calls go by; Log what the kernel prints.
func TestADecisionTellsTheNumberAndWhatToLog(t *testing.T) {
	d := decider(t, "probability=100 times=-1 interval=2 verbose=5 verbose-ratelimit-interval-ms=1000 verbose-ratelimit-burst=2")
	var n []uint64
	var logs []int
	for i := range 16 {
		c := call()
		c.Now = epoch.Add(time.Duration(i) * 100 * time.Millisecond)
		dec := d.Decide(c)
		if dec.N != uint64(i+1) || dec.Fail != (i%2 == 1) {
			t.Errorf("call %d: %+v", i+1, dec)
		}
		if dec.Fail {
			n, logs = append(n, dec.N), append(logs, dec.Log)
		}
	}
	// The window begins with the first failure, at 100 ms, and is over when more than a second has passed.
	if want := []int{2, 2, 0, 0, 0, 0, 2, 2}; len(n) != 8 || !equal(logs, want) {
		t.Errorf("logged %v, want %v", logs, want)
	}
	if d.Eligible() != 16 {
		t.Errorf("%d calls were eligible, want 16", d.Eligible())
	}
	for _, verbose := range []string{"0", "1", "2"} {
		dec := decider(t, "probability=100 verbose="+verbose).Decide(call())
		if want := int(verbose[0] - '0'); dec.Log != want {
			t.Errorf("verbose %s logs %d", verbose, dec.Log)
		}
	}
	if dec := decider(t, "probability=100 times=0").Decide(call()); dec.N != 0 || dec.Log != 0 {
		t.Errorf("an excluded call has %+v", dec)
	}
	want := "FAULT_INJECTION: forcing a failure.\nname fail_function, interval 2, probability 100, space 0, times 7"
	if got := attr(t, "attr=2,100,0,7").Message("fail_function"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestAttributesChangeWhileCallsAreDecided(t *testing.T) {
	d := decider(t, "probability=100 times=3 interval=2 space=3")
	run := func(n int, want string) {
		t.Helper()
		if got := decisions(d, repeat(n, call())); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	set := func(name, value string) {
		t.Helper()
		a := d.Attr()
		if err := a.Set(name, value); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(a); err != nil {
			t.Fatal(err)
		}
	}
	run(4, "bbiF")
	if d.Attr().Times != 2 || d.Space(1) != 1 || d.Space(2) != 3 {
		t.Errorf("times %d, space %d and %d; want 2, 1, 3", d.Attr().Times, d.Space(1), d.Space(2))
	}
	run(1, "i")
	set("verbose", "1") // changes no counter
	run(1, "F")
	set("interval", "3") // the count, 4, goes on
	run(3, "iFt")
	set("times", "-1")
	d.SetSpace(2)
	run(4, "biiF")
	set("when", "2+") // begins anew
	run(3, "wii")
	set("when", "")
	set("interval", "1")
	set("fail-nth", "2")
	run(3, "nFF")
	set("per-thread", "Y")
	set("space", "3")
	run(3, "nFb")
	a := d.Attr()
	a.Probability = 2
	if err := d.Update(a); err == nil || d.Attr().Probability != 1 {
		t.Errorf("an update to a probability of 2: %v", err)
	}
}

// TestDecidersBesideEachOther: they share the state for all processes, and each has the rest for itself.
func TestDecidersBesideEachOther(t *testing.T) {
	for _, c := range []struct{ settings, both string }{ // the decisions about the calls of two processes, in turns
		{"probability=100 interval=2 times=3", "i i F F i i F t t t"},
		{"probability=100 times=-1 rate=2/1s", "F F r r r r"},
		{"fail-nth=2", "n n F F p p"},
		{"probability=100 times=-1 space=2", "b b F F F F"},
		{"probability=100 times=-1 when=2", "w w F F w w"},
	} {
		one := decider(t, c.settings)
		two, err := one.Beside(attr(t, c.settings))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range strings.Fields(c.both) {
			d := []*fault.Decider{one, two}[i%2]
			got = append(got, decisions(d, []fault.Call{{Process: 1 + i%2, Thread: 1 + i%2, Size: 1, Now: epoch}}))
		}
		if s := strings.Join(got, " "); s != c.both {
			t.Errorf("%s: %s, want %s", c.settings, s, c.both)
		}
		if one.Attr().Times != two.Attr().Times {
			t.Errorf("%s: %d times are left, and %d", c.settings, one.Attr().Times, two.Attr().Times)
		}
	}
	one := decider(t, "probability=100 times=-1 for=10s")
	two, err := one.Beside(one.Attr())
	if err != nil {
		t.Fatal(err)
	}
	one.Begin(epoch)
	if left := two.Begin(epoch.Add(4 * time.Second)); left != 6*time.Second || two.Done(epoch.Add(9*time.Second)) || !two.Done(epoch.Add(10*time.Second)) {
		t.Errorf("%v is left", left)
	}
	if _, err := one.Beside(fault.Attr{Probability: 2}); err == nil {
		t.Error("attributes that make no sense are taken")
	}
}

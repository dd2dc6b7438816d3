package halts

import (
	"math/rand/v2"
	"testing"
)

// logOf is a thread's log with halts from and to, one after the other.
func logOf(times ...uint64) *Log {
	l := &Log{}
	for i, t := range times {
		if i%2 == 0 {
			l.Stop(t, Stopped)
		} else {
			l.Resume(t)
		}
	}
	return l
}

func TestWhatHaltsComeToInACall(t *testing.T) {
	waits := logOf(100)
	waits.Waits()
	waits.Resume(150)
	joined := logOf(100, 150, 170)
	joined.Join()
	twice := logOf(100)
	twice.Stop(120, Spun)
	twice.Resume(150)
	for _, c := range []struct {
		name         string
		log          *Log
		began, ended uint64
		want         Sum
	}{
		{"none", logOf(), 10, 20, Sum{}},
		{"no log", nil, 10, 20, Sum{}},
		{"before and behind", logOf(10, 20, 90, 95), 30, 80, Sum{}},
		{"at both ends", logOf(10, 20, 90), 15, 93, Sum{Halts: 2, Held: 8, Ends: [kinds]uint64{2, 0}}},
		{"at its beginning", logOf(10, 20), 15, 93, Sum{Halts: 1, Held: 5, Ends: [kinds]uint64{1, 0}}},
		{"at its end", logOf(90), 15, 93, Sum{Halts: 1, Held: 3, Ends: [kinds]uint64{1, 0}}},
		{"in it", logOf(20, 30, 40, 60), 15, 93, Sum{Halts: 2, Held: 30, Ends: [kinds]uint64{4, 0}}},
		{"a call within a halt", logOf(20, 90), 30, 40, Sum{Halts: 1, Held: 10}},
		{"waiting", waits, 90, 200, Sum{Halts: 1, Idle: 50, IdleEnds: 2}},
		{"joined", joined, 90, 200, Sum{Halts: 1, Held: 100, Ends: [kinds]uint64{1, 0}}},
		{"held in two ways", twice, 90, 200, Sum{Halts: 1, Held: 50, Ends: [kinds]uint64{0, 2}}},
		{"no time", logOf(20, 30), 25, 25, Sum{}},
	} {
		if got := c.log.Within(c.began, c.ended); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for at, want := range map[uint64]Sum{15: {Halts: 1, Held: 5, Ends: [kinds]uint64{1, 0}}, 25: {}, 90: {Halts: 1, Held: 60, Ends: [kinds]uint64{1, 0}}} {
		if got := logOf(10, 20, 30).At(at, 15, 90); got != want {
			t.Errorf("at %d: %+v, want %+v", at, got, want)
		}
	}
}

// TestALogOfAnyLengthIsCountedExactly where its halts are kept; of those that are forgotten it is known which may be in the call.
func TestALogOfAnyLengthIsCountedExactly(t *testing.T) {
	const all = 100_000
	l := &Log{}
	for i := range uint64(all) {
		l.Stop(10*i+10, Stopped)
		l.Resume(10*i + 14)
		if len(l.halts) > most {
			t.Fatalf("%d halts are kept", len(l.halts))
		}
	}
	end := uint64(10*all + 10)
	if n := l.Count(); n != all {
		t.Errorf("%d halts, want %d", n, all)
	}
	if got, want := l.Within(5, end), (Sum{Halts: all, Held: 4 * all, Ends: [kinds]uint64{2 * all, 0}}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := l.Within(end-505, end), (Sum{Halts: 50, Held: 4 * 50, Ends: [kinds]uint64{100, 0}}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		began := r.Uint64N(end)
		got := l.Within(began, end)
		truth := (end - began) / 10
		if sure := uint64(got.Halts) - got.IdleEnds/2; sure > truth+1 || uint64(got.Halts)+1 < truth {
			t.Fatalf("from %d: between %d and %d halts, want %d", began, sure, got.Halts, truth)
		}
	}
}

// known has samples of 35 to 45.
func known() (l Latency) {
	for i := range uint64(enough) {
		l.Sample(35 + i%3*5)
	}
	return l
}

func TestTheCostOfHaltsIsTakenAway(t *testing.T) {
	ls := &Latencies{Stopped: known()}
	both := Sum{Halts: 2, Held: 100, Ends: [kinds]uint64{2, 0}}
	for _, c := range []struct {
		name   string
		ls     *Latencies
		lasted uint64
		in     Sum
		want   Range
	}{
		{"in the target", ls, 77, Sum{}, Range{77, 77}},
		{"long", ls, 1140, both, Range{995, 1005}},
		{"short", ls, 142, both, Range{0, 10}},
		{"as short as can be", ls, 135, both, Range{0, 10}},
		{"shorter than was ever seen", ls, 106, both, Range{0, 6}},
		{"held longer than it has lasted", ls, 90, both, Range{}},
		{"one end", ls, 1000, Sum{Halts: 1, Ends: [kinds]uint64{1, 0}}, Range{955, 1000}},
		{"nested", ls, 1000, Sum{Halts: 4, Held: 200, Ends: [kinds]uint64{6, 0}}, Range{665, 695}},
		{"waiting", ls, 1000, Sum{Halts: 1, Idle: 100, IdleEnds: 2}, Range{855, 1000}},
		{"nothing is known", &Latencies{}, 1140, both, Range{0, 1040}},
		{"little is known", &Latencies{Stopped: {least: 50}}, 1140, both, Range{990, 1040}},
		{"spun", &Latencies{Spun: {least: 2}}, 1140, Sum{Halts: 2, Ends: [kinds]uint64{0, 2}}, Range{1138, 1140}},
	} {
		if got := c.ls.Took(c.lasted, c.in); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestNoTimeIsLongerThanItWasMeasured, whatever was seen before.
func TestNoTimeIsLongerThanItWasMeasured(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		ls, l, now := &Latencies{}, &Log{}, uint64(1)
		for range r.IntN(20) {
			ls[Stopped].Sample(1 + r.Uint64N(100))
			ls[Spun].Ran(1 + r.Uint64N(10))
		}
		for range r.IntN(6) {
			now += r.Uint64N(100)
			l.Stop(now, Kind(r.IntN(int(kinds))))
			if r.IntN(4) == 0 {
				l.Waits()
			}
			now += r.Uint64N(100)
			l.Resume(now)
		}
		began := r.Uint64N(now + 1)
		lasted := r.Uint64N(now + 100 - began)
		in := l.Within(began, began+lasted)
		if got := ls.Took(lasted, in); got.Max > lasted || got.Min > got.Max || in.Held > lasted {
			t.Fatalf("%+v of %d, with %+v", got, lasted, in)
		}
	}
}

func TestTheLatestSamplesCount(t *testing.T) {
	var l Latency
	want := func(least, high, most uint64, known, sure bool) {
		t.Helper()
		if a, b, c := l.estimate(1); a != least || b != high || c != most || l.Known() != known || l.Sure() != sure {
			t.Errorf("%d, %d, %d, %v %v; want %d, %d, %d, %v %v", a, b, c, l.Known(), l.Sure(), least, high, most, known, sure)
		}
	}
	want(0, 1, 1, false, false)
	l.Ran(60)
	l.Sample(1000)
	l.Sample(2000)
	want(0, 60, 60, false, false)
	l.Sample(90)
	want(60, 2000, 2000, true, false)
	for range 2 * enough {
		l.Sample(70)
	}
	l.Sample(10_000) // somebody else had the processor
	want(60, 70, 10_000, true, true)
}

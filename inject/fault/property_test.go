package fault_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gokprobe/gokprobe/inject/fault"
)

// The numbers of the well-known splitmix64 from seed 1234567.
func TestMixIsSplitmix64(t *testing.T) {
	for n, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := fault.Mix(1234567, uint64(n)); got != want {
			t.Errorf("number %d is %d, want %d", n, got, want)
		}
	}
}

// The counts of failures in 100,000 calls, and the first calls that fail, were computed
// with whole numbers by another program. The random numbers are good enough if the counts
// are near the probability. If they are exactly these, nothing but the seed decides.
func TestAProbabilityFailsItsShareOfCalls(t *testing.T) {
	for _, tt := range []struct {
		seed        uint64
		probability float64
		failures    int
		first       []uint64
	}{
		{0, 0.1, 9828, []uint64{2, 32, 33, 41}}, {0, 0.5, 50085, []uint64{1, 2, 4, 5}},
		{0, 0.001, 121, []uint64{410, 821, 2875, 4967}}, {0, 0.999, 99907, []uint64{0, 1, 2, 3}},
		{1, 0.1, 9912, []uint64{20, 21, 25, 28}}, {1, 0.5, 49966, []uint64{3, 4, 8, 10}},
		{42, 0.1, 10066, []uint64{4, 18, 21, 24}}, {42, 0.001, 97, []uint64{171, 1747, 2718, 3405}},
		{0xfeedface, 0.001, 100, []uint64{534, 1112, 1213, 1777}}, {0xfeedface, 0.999, 99908, []uint64{0, 1, 2, 3}},
	} {
		a := fault.Always()
		a.Probability, a.Seed = tt.probability, tt.seed
		d, err := fault.New(a)
		if err != nil {
			t.Fatal(err)
		}
		failures, first := 0, []uint64{}
		for range 100000 {
			if dec := d.Decide(call()); dec.Fail {
				failures++
				if len(first) < 4 {
					first = append(first, dec.N-1)
				}
			}
		}
		if failures != tt.failures || !equal(first, tt.first) {
			t.Errorf("seed %d, probability %v: %d failures from %v, want %d from %v", tt.seed, tt.probability, failures, first, tt.failures, tt.first)
		}
	}
}

// run decides n calls of one process and returns which failed, from 0.
func run(t *testing.T, a fault.Attr, n int) (failed []int) {
	t.Helper()
	d, err := fault.New(a)
	if err != nil {
		t.Fatal(a, err)
	}
	for i := range n {
		if d.Decide(call()).Fail {
			failed = append(failed, i)
		}
	}
	return failed
}

func TestProperties(t *testing.T) {
	for round := range 1000 {
		r := rand.New(rand.NewPCG(3, uint64(round)))
		a := randomAttr(r)
		a.TaskFilter, a.Rate, a.For, a.FailNth = false, fault.Rate{}, 0, 0
		const calls = 200
		all := run(t, a, calls)
		if again := run(t, a, calls); !equal(all, again) {
			t.Errorf("%v: the same seed decides differently: %v, %v", a, all, again)
		}

		never := a
		never.Probability = 0
		if failed := run(t, never, calls); len(failed) != 0 {
			t.Errorf("%v: probability 0 fails %v", never, failed)
		}
		never = a
		never.Times = 0
		if failed := run(t, never, calls); len(failed) != 0 {
			t.Errorf("%v: times 0 fails %v", never, failed)
		}

		unlimited, limited := a, a
		unlimited.Times, limited.Times = -1, 1+r.Int64N(50)
		failed := run(t, unlimited, calls)
		if got := run(t, limited, calls); !equal(got, failed[:min(len(failed), int(limited.Times))]) {
			t.Errorf("%v: times cuts %v to %v", limited, failed, got)
		}

		// Space s holds the first s-1 calls of size 1 back, and else changes nothing.
		roomy := unlimited
		roomy.Space = 0
		failed = run(t, roomy, calls)
		roomy.Space = 1 + r.Int64N(20)
		late := run(t, roomy, calls+int(roomy.Space)-1)
		for i := range late {
			late[i] -= int(roomy.Space) - 1
		}
		if !equal(late, failed) {
			t.Errorf("%v: with space %v, without %v", roomy, late, failed)
		}

		// With probability 1, interval i behind space s fails calls s-1+i-1, s-1+2i-1 …
		regular := fault.Always()
		regular.Space, regular.Interval = roomy.Space, 1+r.Uint64N(12)
		var want []int
		for n := int(regular.Space) - 1 + int(regular.Interval) - 1; n < calls; n += int(regular.Interval) {
			want = append(want, n)
		}
		if got := run(t, regular, calls); !equal(got, want) {
			t.Errorf("%v: fails %v, want %v", regular, got, want)
		}
	}
}

// A higher probability fails what a lower one fails, and more.
func TestProbabilitiesNest(t *testing.T) {
	chosen := func(p float64) map[int]bool {
		a := fault.Always()
		a.Probability, a.Seed = p, 9
		m := map[int]bool{}
		for _, n := range run(t, a, 5000) {
			m[n] = true
		}
		return m
	}
	less := chosen(0)
	for _, p := range []float64{math.SmallestNonzeroFloat64, 1e-4, 0.01, 0.5, 0.9, math.Nextafter(1, 0), 1} {
		more := chosen(p)
		for n := range less {
			if !more[n] {
				t.Errorf("call %d fails with less than %v, not with that", n, p)
			}
		}
		less = more
	}
	if len(less) != 5000 {
		t.Errorf("probability 1 fails %d of 5000", len(less))
	}
}

func TestWhenAgreesWithItsStep(t *testing.T) {
	for range 2000 {
		w := fault.When{First: 1 + rand.Uint64N(9), Step: rand.Uint64N(4)}
		if rand.IntN(2) == 0 {
			w.Last = w.First + rand.Uint64N(9)
		}
		list := map[uint64]bool{w.First: true}
		for n := w.First; w.Step > 0 && n <= 40 && (w.Last == 0 || n <= w.Last); n += w.Step {
			list[n] = true
		}
		for n := uint64(1); n <= 40; n++ {
			if w.Contains(n) != list[n] {
				t.Errorf("%v contains call %d: %v", w, n, w.Contains(n))
			}
		}
	}
}

// A random number that is exactly the limit does not fail, the next one below does: by
// Decide and by a step in the target.
func TestTheLimitOfAProbabilityIsExact(t *testing.T) {
	seed := uint64(0)
	for fault.Mix(seed, 0)&0x7ff != 0 || fault.Mix(seed, 0) < 1<<63 { // until it is a float64
		seed++
	}
	limit := math.Ldexp(float64(fault.Mix(seed, 0)), -64)
	for p, want := range map[float64]bool{limit: false, math.Nextafter(limit, 1): true, math.SmallestNonzeroFloat64: false} {
		a := fault.Always()
		a.Probability, a.Seed = p, seed
		part, err := a.Static()
		if err != nil {
			t.Fatal(err)
		}
		if got := len(run(t, a, 1)) == 1; got != want || part.Steps[0].Met(0) != want {
			t.Errorf("probability %v: decided %v, in the target %v; want %v", p, got, part.Steps[0].Met(0), want)
		}
	}
}

package ptrace

import (
	"testing"
	"time"
)

// TestALookMustPay: a look goes on if hits come at a rate that is higher by half than that of
// hits that trap.
func TestALookMustPay(t *testing.T) {
	const trapped = 4 * time.Microsecond
	for _, c := range []struct {
		hits int
		in   time.Duration
		pays bool
	}{
		{1000, 300 * time.Microsecond, true},
		{1000, 2600 * time.Microsecond, true},
		{1000, 2700 * time.Microsecond, false},
		{1000, 4 * time.Millisecond, false},
		{0, time.Microsecond, false},
		{2, time.Microsecond, false},
	} {
		now := time.Now()
		p := poll{trapped: trapped, since: now.Add(-c.in), hits: c.hits}
		if got := p.pays(now); got != c.pays {
			t.Errorf("%d hits in %v: pays %v, want %v", c.hits, c.in, got, c.pays)
		}
	}
	if now := time.Now(); (&poll{since: now.Add(-time.Second), hits: 1000}).pays(now) {
		t.Error("a look pays though nothing is known of traps")
	}
}

// TestALookIsJudgedAfterATrial, and ended now and then though it pays, to measure again.
func TestALookIsJudgedAfterATrial(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name            string
		after, measured time.Duration
		hits            int
		vain            bool
	}{
		{"too early", trial / 2, 0, 0, false},
		{"no hits", trial, 0, 0, true},
		{"many hits", trial, 0, 100_000, false},
		{"measured long ago", trial, remeasure, 100_000, true},
	} {
		p := poll{trapped: 4 * time.Microsecond, since: begin, hits: c.hits, measured: begin.Add(-c.measured)}
		if got := p.vain(begin.Add(c.after)); got != c.vain {
			t.Errorf("%s: vain %v, want %v", c.name, got, c.vain)
		}
	}
}

// TestLooksThatFailAreRare: a failed look is a small share of the time.
func TestLooksThatFailAreRare(t *testing.T) {
	p := poll{}
	now := time.Now()
	last := time.Duration(0)
	for range 30 {
		p.fail(now, 3*time.Millisecond)
		if p.pause < waste*3*time.Millisecond || p.pause < last || p.pause > maxPause {
			t.Fatalf("a pause of %v after one of %v", p.pause, last)
		}
		last = p.pause
	}
	if last != maxPause {
		t.Errorf("the longest pause is %v, want %v", last, maxPause)
	}
}

// TestTheCheapestSampleCounts: what else the machine does makes single samples too high.
func TestTheCheapestSampleCounts(t *testing.T) {
	p := poll{}
	now := time.Now()
	for i, cost := range []time.Duration{0, 90, 5, 200, 7} {
		now = now.Add(cost * time.Microsecond * someHits)
		p.skip = (samples - i) * someHits
		p.sample(now)
	}
	if p.trapped != 5*time.Microsecond || !p.measured.Equal(now) {
		t.Errorf("a hit that traps costs %v, want 5µs", p.trapped)
	}
}

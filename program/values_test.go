package program

import (
	"math"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	log2 := Map{Kind: Log2}
	linear := Map{Kind: Linear, Min: -10, Step: 5, Buckets: 4}
	for _, c := range []struct {
		m    Map
		v    int64
		cell int
	}{
		{log2, 0, 0}, {log2, 1, 1}, {log2, 2, 2}, {log2, 3, 2}, {log2, 4, 3}, {log2, math.MaxInt64, 63}, {log2, -1, 64},
		{linear, -11, 0}, {linear, math.MinInt64, 0}, {linear, -10, 1}, {linear, -6, 1}, {linear, -5, 2}, {linear, 0, 3},
		{linear, 9, 4}, {linear, 10, 5}, {linear, math.MaxInt64, 5},
		{Map{Kind: Linear, Min: math.MinInt64, Step: 1 << 62, Buckets: 1}, math.MaxInt64, 2},
	} {
		cell := c.m.Cell(uint64(c.v))
		least, greatest := c.m.Bucket(cell)
		inside := uint64(c.v) >= least && uint64(c.v) <= greatest
		if c.m.Kind == Linear {
			inside = c.v >= int64(least) && c.v <= int64(greatest)
		}
		if cell != c.cell || !inside {
			t.Errorf("%s: %d is in cell %d (%#x to %#x), want %d", c.m.Kind, c.v, cell, least, greatest, c.cell)
		}
	}
}

func TestValuesAreTheSumOfTheShards(t *testing.T) {
	m := Map{Kind: Log2, Shards: 4}
	mem := make([]uint64, m.Len()/8)
	for s := range 4 {
		mem[s*m.ShardStride()/8+7] = uint64(s + 1)
	}
	v, err := m.Values(mem)
	if err != nil || len(v) != Log2Cells || v[7] != 10 {
		t.Errorf("%d, %v", v, err)
	}
	if _, err := m.Values(mem[1:]); err == nil {
		t.Error("values of a map that is too short")
	}
	if _, err := (Map{Kind: Ring, Size: MinRingSize}).Values(make([]uint64, MinRingSize)); err == nil {
		t.Error("values of a ring")
	}
}

func TestClock(t *testing.T) {
	const day = 24 * int64(time.Hour)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	c, ok := ClockBetween(1e12, start, 1e12+25e8, start+int64(time.Second)) // 2.5 GHz
	if !ok {
		t.Fatal("no clock")
	}
	for _, at := range []int64{0, 1, int64(time.Second), day, -1000, -day} {
		tsc := uint64(1e12 + at/2*5)
		if got := c.UnixNano(tsc) - start; got-at > 30_000 || at-got > 30_000 { // half a ppb of a day
			t.Errorf("%d ns: got %d", at, got)
		}
	}
	if d := c.Duration(2500); d < 999 || d > 1000 {
		t.Errorf("2500 ticks are %d ns", d)
	}
	ring := make([]uint64, RingData/8)
	if PutClock(ring, c); ClockOf(ring) != c {
		t.Errorf("kept as %+v", ClockOf(ring))
	}
	for _, bad := range [][4]int64{{5, 0, 5, 1}, {0, 5, 1, 5}, {0, 0, 1, 1 << 40}, {9, 0, 5, 1}} {
		if _, ok := ClockBetween(uint64(bad[0]), bad[1], uint64(bad[2]), bad[3]); ok {
			t.Errorf("%v is a clock", bad)
		}
	}
}

package program

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Values are the cells of a counter, histogram or state in mem, summed over its shards. Hits
// that are under way may or may not be in.
func (m Map) Values(mem []uint64) ([]uint64, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if m.Kind == Ring || len(mem) < m.Len()/8 {
		return nil, fmt.Errorf("%s in %d bytes has no values", m.Kind, 8*len(mem))
	}
	sum := make([]uint64, m.PerShard())
	for s := range m.shards() {
		shard := mem[s*m.ShardStride()/8:]
		for i := range sum {
			sum[i] += atomic.LoadUint64(&shard[i])
		}
	}
	return sum, nil
}

// Bucket are the least and the greatest value that a hit in the given cell had: unsigned
// numbers for Log2, signed ones for Linear.
func (m Map) Bucket(cell int) (least, greatest uint64) {
	switch {
	case m.Kind == Log2 && cell > 0:
		return 1 << (cell - 1), 1<<cell - 1 // 1<<64 is 0
	case m.Kind == Log2:
		return 0, 0
	case m.Kind == Linear && cell == 0:
		return 1 << 63, uint64(m.Min - 1)
	case m.Kind == Linear && cell > m.Buckets:
		return uint64(m.Min + int64(m.Buckets)*m.Step), math.MaxInt64
	case m.Kind == Linear:
		least = uint64(m.Min + int64(cell-1)*m.Step)
		return least, least + uint64(m.Step) - 1
	}
	return 0, math.MaxUint64
}

// Clock makes times of what the helper Time returns.
type Clock struct {
	TSC   uint64 // Time's result at some moment
	Nanos int64  // that moment, in nanoseconds since 1970
	Mult  uint64 // nanoseconds per tick, times 1<<ClockShift
}

// ClockBetween returns the clock that showed tsc0 at the time nanos0, and tsc1 at the
// later nanos1. ok is false if it is not later, or if the clock is slower than 1 Hz.
func ClockBetween(tsc0 uint64, nanos0 int64, tsc1 uint64, nanos1 int64) (c Clock, ok bool) {
	if tsc1 <= tsc0 || nanos1 <= nanos0 {
		return Clock{}, false
	}
	ticks, nanos := tsc1-tsc0, uint64(nanos1-nanos0)
	hi, lo := nanos>>(64-ClockShift), nanos<<ClockShift
	if hi >= ticks {
		return Clock{}, false
	}
	mult, _ := bits.Div64(hi, lo, ticks)
	return Clock{TSC: tsc1, Nanos: nanos1, Mult: mult}, mult>>ClockShift < 1e9
}

// UnixNano is the time at which Time returned tsc, in nanoseconds since 1970.
func (c Clock) UnixNano(tsc uint64) int64 {
	ticks := int64(tsc - c.TSC)
	if ticks < 0 {
		return c.Nanos - c.nanos(uint64(-ticks))
	}
	return c.Nanos + c.nanos(uint64(ticks))
}

// Duration is how long ticks of Time's result take.
func (c Clock) Duration(ticks uint64) time.Duration { return time.Duration(c.nanos(ticks)) }

func (c Clock) nanos(ticks uint64) int64 {
	hi, lo := bits.Mul64(ticks, c.Mult)
	return int64(hi<<(64-ClockShift) | lo>>ClockShift)
}

// PutClock keeps c beside a ring. It is for one that is not in use.
func PutClock(ring []uint64, c Clock) {
	ring[RingClockTSC/8], ring[RingClockNanos/8], ring[RingClockMult/8] = c.TSC, uint64(c.Nanos), c.Mult
}

// ClockOf is the clock that is kept beside a ring.
func ClockOf(ring []uint64) Clock {
	return Clock{ring[RingClockTSC/8], int64(ring[RingClockNanos/8]), ring[RingClockMult/8]}
}

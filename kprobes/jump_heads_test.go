package kprobes

import (
	"encoding/binary"
	"testing"
	"time"
)

// TestAJumpEndsWhereABreakpointWouldCostNoMore stops. Where the target does not count, it is told by their rate.
func TestAJumpEndsWhereABreakpointWouldCostNoMore(t *testing.T) {
	for _, c := range []struct {
		name      string
		counted   bool
		hits      uint64        // between two stops at a head
		between   time.Duration // them
		wantTaken bool
	}{
		{"jumps into it alone", true, 0, time.Microsecond, true},
		{"as many jumps as calls", true, 1, time.Second, true},
		{"fewer jumps than calls", true, 2, time.Microsecond, false},
		{"a loop, not counted", false, 0, 10 * time.Microsecond, true},
		{"signals, not counted", false, 0, time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			det := &detour{}
			if c.counted {
				det.count = &counter{cells: make([]byte, shards()*shardSize)}
			}
			now, taken := time.Now(), 0
			for range 10 * demotion {
				if now = now.Add(c.between); det.cameToHead(now) {
					taken++
				}
				if c.counted {
					binary.NativeEndian.PutUint64(det.count.cells, sumOf(det.count.cells)+c.hits)
				}
			}
			if want := map[bool]int{true: 1}[c.wantTaken]; taken != want || det.demoted() != c.wantTaken {
				t.Errorf("it is taken back %d times, %v", taken, det.demoted())
			}
		})
	}
}

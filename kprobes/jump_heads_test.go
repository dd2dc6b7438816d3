package kprobes

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
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

// TestAnUpcallEndsWhereABreakpointWouldCostLess: a handler that needs some hits' threads stopped does not cost all others their jump.
func TestAnUpcallEndsWhereABreakpointWouldCostLess(t *testing.T) {
	for _, c := range []struct {
		every     int // one hit in so many needs its thread stopped
		wantTaken bool
	}{{1, true}, {2, true}, {3, false}, {100, false}} {
		det, taken := &detour{}, 0
		det.inUpcall.answered = 1e9 // before the first of them
		for hit := range 10 * demotion * c.every {
			if det.inUpcall.answered++; hit%c.every == 0 && det.halted() {
				taken++
			}
		}
		if want := map[bool]int{true: 1}[c.wantTaken]; taken != want || det.demoted() != c.wantTaken {
			t.Errorf("one hit in %d: it is taken back %d times, %v", c.every, taken, det.demoted())
		}
	}
}

// TestSignalsCostNoJump, however many come at once, and however few hits there are meanwhile: each sends one thread to a head.
func TestSignalsCostNoJump(t *testing.T) {
	for _, counted := range []bool{true, false} {
		det := &detour{}
		if counted {
			det.count = &counter{cells: make([]byte, shards()*shardSize)}
		}
		ds := &detours{heads: map[arch.Addr]*detour{0x1004: det}}
		now := time.Now()
		for range 10 * demotion {
			ds.sentToHead(det, 0x1000) // its site
			ds.sentToHead(det, 0x1004)
			if det.cameToHead(now) {
				t.Fatalf("counted %v: signals take it back", counted)
			}
		}
		for range demotion {
			det.cameToHead(now)
		}
		if !det.demoted() {
			t.Errorf("counted %v: jumps into it do not take it back", counted)
		}
	}
}

package kprobes

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Miss is why a hit ran no handler, or why a call was not followed to its return.
type Miss uint8

// Why hits and calls are missed.
const (
	MissNested        Miss = iota // a handler ran in the thread already
	MissAccess                    // a handler's access failed, and its FaultHandler was asked
	MissArguments                 // those of a Jprobe could not be read
	MissMaxActive                 // so many calls were followed already
	MissReturnAddress             // it is not known, or takes no breakpoint
	MissUnreturned                // the call ended in another way: by longjmp, an exception, or with its thread or process
	MissEnded                     // the thread or the session ended before the handler ran
	MissForeign                   // the process executes other files, or has mapped them elsewhere, and so it is not known what is wanted of the hit
	misses
)

// String is the reason of one miss.
func (m Miss) String() string {
	return [...]string{
		"a handler ran in the thread",
		"a handler's access to memory failed",
		"the arguments could not be read",
		"too many calls were followed at once",
		"the return address takes no breakpoint",
		"the call ended without a return",
		"the thread or the session ended first",
		"in other files, or elsewhere in memory, what is looked at was not known",
	}[m]
}

// Misses counts by Miss.
type Misses [misses]uint64

// Plus adds other counts.
func (m Misses) Plus(other Misses) Misses {
	for why, n := range other {
		m[why] += n
	}
	return m
}

// Sum is how many were missed.
func (m Misses) Sum() (n uint64) {
	for _, one := range m {
		n += one
	}
	return n
}

// String lists the reasons with their numbers.
func (m Misses) String() string {
	var told []string
	for why, n := range m {
		if n > 0 {
			told = append(told, fmt.Sprintf("%v (%d)", Miss(why), n))
		}
	}
	return strings.Join(told, ", ")
}

// missed is Misses that are still counted. It is safe for concurrent use.
type missed [misses]atomic.Uint64

func (m *missed) add(why Miss, n uint64) { m[why].Add(n) }

func (m *missed) load() (all Misses) {
	for why := range m {
		all[why] = m[why].Load()
	}
	return all
}

func (m *missed) reset() {
	for why := range m {
		m[why].Store(0)
	}
}

// Misses counts what NMissed does by why. Safe for concurrent use.
func (kp *Kprobe) Misses() Misses { return kp.missed.load() }

// Misses counts what NMissed does by why. Safe for concurrent use.
func (rp *Kretprobe) Misses() Misses { return rp.missed.load() }

// newHit runs what is to run when st is hit, before the instruction. The answer is runPre's.
func (hs *hits) newHit(ts *threadState, d *domain, st *site) (diverted bool) {
	if st.linker {
		hs.linkerCalled(ts, d)
	}
	if st.calls.unwinds {
		hs.unwound(ts, d)
	}
	d.optimizer.hit(st)
	if ts.outer != nil {
		if !hs.s.registry.disarmed {
			st.miss()
		}
		return false
	}
	ts.declined, ts.left = nil, false
	if st.calls.any() && !d.released {
		hs.returned(ts, st)
	}
	return hs.runPre(ts, st)
}

// miss counts a hit of a thread in which a handler runs already, for every probe of the site
// (B26, B29). One that is there for other reasons than an enabled probe misses nothing.
func (st *site) miss() {
	if !slices.ContainsFunc(st.probes, (*Kprobe).enabled) {
		return
	}
	for _, kp := range st.probes {
		kp.missed.add(MissNested, 1)
	}
}

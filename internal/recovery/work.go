package recovery

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gokprobe/gokprobe/ptrace"
)

// How much a recovery may do. The journal and the stacks that it reads belong to the
// target. They may say anything, and lead in circles. So all that is done for what was
// read there is counted, whichever of the regions, threads and contexts it is for, and
// ends with the effort. It is more work than any real tracer leaves. It grows with the
// number of threads, which the target must really have.

// effort is the work that a recovery may still do. A unit is about a microsecond of processor time.
type effort struct{ given, left int }

// The costs of operations, in units.
const (
	pageWork       = 1  // to read a page of a stack, and to go through its known contexts
	contextWork    = 1  // to look at a context
	newContextWork = 8  // to keep its content, which takes memory
	stackWork      = 8  // to begin with a stack
	placeWork      = 12 // to find where a thread goes on, most of the time of a step, too
	stepWork       = 8  // to step one: paid from the steps, a larger budget

	// mostSteps is for all threads: few of them are in bodies of ours, and one in a thousand in a long one.
	mostSteps = 2 * ptrace.MaxSteps

	baseEffort      = 1 << 19
	effortPerThread = 1 << 10 // half a mebibyte of stack and more
	mostEffort      = 1 << 20 // two gibibytes of stacks that are in use
)

// effortFor is enough for so many threads.
func effortFor(threads int) int { return min(baseEffort+effortPerThread*threads, mostEffort) }

func newEffort(n int) *effort { return &effort{n, n} }

// spend takes n units. It is false, now and from then on, if so many are not there.
func (e *effort) spend(n int) bool {
	if e.left < n {
		e.left = 0
		return false
	}
	e.left -= n
	return true
}

func (e *effort) over() bool { return e.left == 0 }

// end uses up the whole budget.
func (e *effort) end() { e.left = 0 }

// Purse is what several recoveries have together: those of one guardian, whose targets may all be hostile, and many. When it is empty each still has the
// least. A nil one is never empty. Safe for concurrent use.
type Purse struct{ effort, records atomic.Int64 }

// What a guardian's recoveries have, and the least of each.
const (
	purseEffort  = 1 << 26 // units
	purseRecords = 1 << 22
	leastEffort  = 1 << 16
	leastRecords = 1 << 14
)

// NewPurse is a full one.
func NewPurse() *Purse {
	p := &Purse{}
	p.effort.Store(purseEffort)
	p.records.Store(purseRecords)
	return p
}

// draw is what a recovery of a process with so many threads may do, and how many records it may read.
func (p *Purse) draw(threads int) (work, records int) {
	work = effortFor(threads)
	if p == nil {
		return work, math.MaxInt
	}
	return min(work, max(int(p.effort.Load()), leastEffort)), max(int(p.records.Load()), leastRecords)
}

// pay is called when it has done so much.
func (p *Purse) pay(work, records int) {
	if p != nil {
		p.effort.Add(-int64(work))
		p.records.Add(-int64(records))
	}
}

// Spent is the work that recoveries have done from it.
func (p *Purse) Spent() int { return purseEffort - int(p.effort.Load()) }

// empty reports whether the budget is used up; failures are then retried only rarely.
func (p *Purse) empty() bool { return p != nil && (p.effort.Load() <= 0 || p.records.Load() <= 0) }

// turns limits the recoveries that work at the same time: each keeps threads stopped,
// and its findings in memory.
type turns struct {
	slots   chan struct{}
	longest time.Duration // then the next begins all the same: memory of a target may be a file's that nobody answers for
}

func newTurns(n int, longest time.Duration) *turns {
	return &turns{make(chan struct{}, n), longest}
}

// take waits for a turn, which done ends.
func (t *turns) take() (done func()) {
	t.slots <- struct{}{}
	give := sync.OnceFunc(func() { <-t.slots })
	timer := time.AfterFunc(t.longest, give)
	return func() {
		timer.Stop()
		give()
	}
}

// recoveries are this process's. All are stopped already when they wait for their turn.
var recoveries = newTurns(4, 30*time.Second)

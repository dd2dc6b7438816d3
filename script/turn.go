package script

import (
	"sync"
	"sync/atomic"
)

// turn is whose turn it is to run the scenario, or to look at what is its: each process has a thread that handlers run on, and one of them runs at a time.
//
// Whoever has the turn waits for no thread of a process but the one that it is on: that one may be waiting for the turn.
type turn struct {
	mu sync.Mutex
	of atomic.Pointer[member] // whose thread has it; nil for others
}

// take waits for the turn of m's thread, or with nil that of whoever else asks. A handler within another one, such as that of a function which the
// first has called, is on the same thread and has the turn already.
func (t *turn) take(m *member) (give func()) {
	if m != nil && t.of.Load() == m {
		return func() {}
	}
	t.mu.Lock()
	t.of.Store(m)
	return t.give
}

func (t *turn) give() {
	t.of.Store(nil)
	t.mu.Unlock()
}

// lend lets others have m's turn while f waits for the process.
func (t *turn) lend(m *member, f func()) {
	t.give()
	defer func() {
		t.mu.Lock()
		t.of.Store(m)
	}()
	f()
}

package trace

import "sync"

// budget is the hits that are still wanted of a probe, or of all probes of a group together. Their tracers' threads
// share it: none of them waits for another one but for the time of a Put.
type budget struct {
	limited bool
	full    chan struct{} // closed when no further hit is wanted

	mu   sync.Mutex
	left uint64
}

// newBudget is for n hits, 0 for any number.
func newBudget(n uint64) *budget {
	return &budget{limited: n > 0, left: n, full: make(chan struct{})}
}

// spend takes one hit if it is within the limit; one that the queue has lost does not count against it. Spent tells that nothing is left now.
func (b *budget) spend(put func() bool) (within, spent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return false, true
	}
	if !put() {
		return true, false
	}
	if b.left--; b.left == 0 {
		close(b.full)
	}
	return true, b.left == 0
}

// spent tells that the limit is reached.
func (b *budget) spent() bool {
	if !b.limited {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left == 0
}

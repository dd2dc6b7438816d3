package trace

import (
	"iter"
	"sync"
)

// QueueDepth is how many hits wait for a slow reader before more are lost.
const QueueDepth = 64 << 10

// Queue takes hits from the tracer's thread, in their order, for one reader. Put never waits, since the target would wait too. Its methods may
// be called concurrently. NewQueue makes a Queue.
type Queue struct {
	mu      sync.Mutex
	pending []Hit
	spare   []Hit
	lost    uint64
	idle    bool // the reader waits for wake
	closed  bool

	wake chan struct{}
	end  chan struct{} // closed by Close
}

// NewQueue makes a queue that nothing is in.
func NewQueue() *Queue { return &Queue{wake: make(chan struct{}, 1), end: make(chan struct{})} }

// Put hands over one hit. It reports false if the hit is lost, because the queue is full or closed.
func (q *Queue) Put(h *Hit) bool {
	q.mu.Lock()
	if q.closed || len(q.pending) >= QueueDepth {
		q.lost++
		q.mu.Unlock()
		return false
	}
	q.pending = append(q.pending, *h)
	wake := q.idle
	q.idle = false
	q.mu.Unlock()
	if wake {
		q.wake <- struct{}{}
	}
	return true
}

// Take waits for hits and takes all that are there. They are the reader's until it calls Take again. It returns none when the queue
// is closed and empty.
func (q *Queue) Take() []Hit {
	for {
		batch, closed := q.take()
		if len(batch) > 0 || closed {
			return batch
		}
		select {
		case <-q.wake:
		case <-q.end:
		}
	}
}

// take swaps the two buffers, and drops the hits that the reader had before.
func (q *Queue) take() (batch []Hit, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.spare)
	batch = q.pending
	q.pending, q.spare = q.spare[:0], batch
	q.idle = len(batch) == 0 && !q.closed
	return batch, q.closed
}

// hits yields the hits that are put, until the queue is closed and empty. Without a queue it yields nothing.
func (q *Queue) hits() iter.Seq[*Hit] {
	return func(yield func(*Hit) bool) {
		if q == nil {
			return
		}
		for batch := q.Take(); len(batch) > 0; batch = q.Take() {
			for i := range batch {
				h := batch[i]
				if !yield(&h) {
					return
				}
			}
		}
	}
}

// Lose counts n hits that the reader has taken and could not use.
func (q *Queue) Lose(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += uint64(n)
}

// Lost counts the hits that were lost: there was no room, or the queue was closed.
func (q *Queue) Lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

// Waiting is how many hits are not taken yet.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// Close ends the queue. Hits that are put afterwards are lost; hits in the queue can still be taken. A second call does nothing.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.end)
	}
}

// Closed is closed by Close.
func (q *Queue) Closed() <-chan struct{} { return q.end }

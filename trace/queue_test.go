package trace

import (
	"sync"
	"testing"
)

func TestAQueueKeepsTheOrderAndCountsWhatIsLost(t *testing.T) {
	q := NewQueue()
	for i := range QueueDepth + 10 {
		if put := q.Put(&Hit{TID: i}); put != (i < QueueDepth) {
			t.Fatalf("hit %d: put %v", i, put)
		}
	}
	if q.Lost() != 10 || q.Waiting() != QueueDepth {
		t.Errorf("%d lost, %d waiting", q.Lost(), q.Waiting())
	}
	got := q.Take()
	for i := range got {
		if got[i].TID != i {
			t.Fatalf("hit %d is number %d", i, got[i].TID)
		}
	}
	q.Close()
	q.Close()
	if q.Put(&Hit{}) || q.Lost() != 11 || len(got) != QueueDepth || q.Take() != nil && len(q.Take()) != 0 {
		t.Errorf("%d lost, %d taken", q.Lost(), len(got))
	}
}

// Who takes waits for who puts, and sees all hits of a closed queue.
func TestAQueueIsReadWhileItIsWritten(t *testing.T) {
	q := NewQueue()
	const writers, each = 4, 2000
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				q.Put(&Hit{PID: w, TID: i})
			}
		})
	}
	go func() {
		all.Wait()
		q.Close()
	}()
	next := [writers]int{}
	for batch := q.Take(); len(batch) > 0; batch = q.Take() {
		for i := range batch {
			h := &batch[i]
			if h.TID != next[h.PID] {
				t.Fatalf("hit %d of writer %d, want %d", h.TID, h.PID, next[h.PID])
			}
			next[h.PID]++
		}
	}
	for w, n := range next {
		if n+int(q.Lost()) < each {
			t.Errorf("%d of writer %d, %d lost", n, w, q.Lost())
		}
	}
}

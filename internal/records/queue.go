// Package records handles records that code in the target has written. It keeps records
// that wait for older ones, and knows which thread has written one. It reads no target:
// both is told to it.
//
// Times are ticks of a counter that all processors share. They are compared as distances, so that the counter may begin anew.
package records

import (
	"math"
	"slices"
	"sort"
)

// AllTimes is later than all others.
const AllTimes = math.MaxUint64

// Later tells whether a is behind b.
func Later(a, b uint64) bool { return int64(a-b) > 0 }

// Within is the time from first to last that is nearest to one that the target has told.
func Within(told, first, last uint64) uint64 {
	switch {
	case Later(told, last):
		return last
	case Later(first, told):
		return first
	}
	return told
}

// Queue has records that were taken, in any order, until they are handed on in that of their times. The zero Queue is empty.
type Queue[T any] struct {
	all  []queued[T]
	size int
}

type queued[T any] struct {
	time   uint64
	size   int
	record T
}

// Add adds a record, which takes so many bytes of memory.
func (q *Queue[T]) Add(time uint64, size int, record T) {
	q.all = append(q.all, queued[T]{time, size, record})
	q.size += size
}

// Len is how many records wait.
func (q *Queue[T]) Len() int { return len(q.all) }

// Size is the bytes of memory that they take.
func (q *Queue[T]) Size() int { return q.size }

// Take removes the records up to a time, and returns them in the order of their times; those of one time in that in which they were added.
func (q *Queue[T]) Take(until uint64) []T {
	slices.SortStableFunc(q.all, func(a, b queued[T]) int { return int(int64(a.time - b.time)) })
	n := len(q.all)
	if until != AllTimes {
		n = sort.Search(n, func(i int) bool { return Later(q.all[i].time, until) })
	}
	taken := make([]T, n)
	for i, r := range q.all[:n] {
		taken[i] = r.record
		q.size -= r.size
	}
	q.all = slices.Clone(q.all[n:]) // not what is handed on
	return taken
}

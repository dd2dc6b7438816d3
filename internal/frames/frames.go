// Package frames keeps book of the calls that are followed: in which frame each was entered, and by whom. It touches no process:
// calls are entered and leave as its user says.
//
// A frame is known by its CFA in the address space. For as long as the call lasts no other frame has it, whichever thread runs on
// that stack: coroutines may move between threads. In Go stacks move as well, and are told by their goroutine and the distance
// from their base. Several calls share a frame where functions end in a jump to another, or where several probes follow one call.
package frames

import (
	"iter"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Frame names the activation of a function. A vfork child has its own though it is on
// its parent's stack: its calls are deeper than that, or in the place of the call of
// vfork.
type Frame struct {
	PID       int
	Goroutine arch.Addr // 0 outside of Go
	CFA       arch.Addr // in Go, the distance from the stack's base to it
}

// Deeper reports whether f is deeper than other: further from the base of the same
// stack, or a function that other has called.
func (f Frame) Deeper(other Frame) bool {
	if f.Goroutine != 0 {
		return f.CFA > other.CFA
	}
	return f.CFA < other.CFA
}

// Owner is who has entered a function. The zero Owner has the calls of threads that are gone.
type Owner struct {
	TID       int // 0 if it is a goroutine, of PID
	PID       int
	Goroutine arch.Addr
}

// Call is a call's place in a Book. It is a part of its user's record of the call, so
// that following a call takes no memory.
type Call[T any] struct {
	Frame Frame // since Enter
	Owner Owner // the present one

	of            T
	below         *Call[T] // entered in the same frame before
	before, after *Call[T] // of the same owner, by the order of their entries
}

// Book has the calls of one address space. The zero Book has none. T is its user's
// record of a call, such as a pointer; where there is no call, methods return the zero
// T.
type Book[T any] struct {
	calls  map[Frame]*Call[T] // the latest of each frame
	owners map[Owner]*Call[T] // the latest of each owner
}

// Enter makes c the place of the call of, the latest in its frame and of its owner. It must be in no book.
func (b *Book[T]) Enter(c *Call[T], of T, own Owner, f Frame) {
	if b.calls == nil {
		b.calls, b.owners = map[Frame]*Call[T]{}, map[Owner]*Call[T]{}
	}
	*c = Call[T]{Frame: f, of: of, below: b.calls[f]}
	b.calls[f] = c
	b.give(c, own)
}

// Leave takes a call out of the book.
func (b *Book[T]) Leave(c *Call[T]) {
	var above *Call[T]
	for at := b.calls[c.Frame]; at != c; at = at.below {
		above = at
	}
	switch {
	case above != nil:
		above.below = c.below
	case c.below != nil:
		b.calls[c.Frame] = c.below
	default:
		delete(b.calls, c.Frame)
	}
	b.disown(c)
}

// Give makes a call that is in the book the latest of another owner.
func (b *Book[T]) Give(c *Call[T], own Owner) {
	b.disown(c)
	b.give(c, own)
}

func (b *Book[T]) give(c *Call[T], own Owner) {
	c.Owner, c.before, c.after = own, b.owners[own], nil
	if c.before != nil {
		c.before.after = c
	}
	b.owners[own] = c
}

func (b *Book[T]) disown(c *Call[T]) {
	switch {
	case c.after != nil:
		c.after.before = c.before
	case c.before != nil:
		b.owners[c.Owner] = c.before
	default:
		delete(b.owners, c.Owner)
	}
	if c.before != nil {
		c.before.after = c.after
	}
}

// Top is the latest call in a frame.
func (b *Book[T]) Top(f Frame) (of T) { return b.calls[f].call() }

// Latest is the latest call of an owner.
func (b *Book[T]) Latest(own Owner) (of T) { return b.owners[own].call() }

func (c *Call[T]) call() (of T) {
	if c != nil {
		of = c.of
	}
	return of
}

// In goes through the calls in a frame, the latest first. The one that it is at may leave meanwhile.
func (b *Book[T]) In(f Frame) iter.Seq[T] {
	return func(yield func(T) bool) {
		for c := b.calls[f]; c != nil; {
			below := c.below
			if !yield(c.of) {
				return
			}
			c = below
		}
	}
}

// Of lists the calls of an owner in the order in which it got them.
func (b *Book[T]) Of(own Owner) (all []T) {
	for c := b.owners[own]; c != nil; c = c.before {
		all = append(all, c.of)
	}
	slices.Reverse(all)
	return all
}

// Frames lists the frames with calls, in no order.
func (b *Book[T]) Frames() []Frame {
	all := make([]Frame, 0, len(b.calls))
	for f := range b.calls {
		all = append(all, f)
	}
	return all
}

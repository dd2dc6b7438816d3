package ptrace

import "slices"

// Kept is what its owner keeps of threads or of address spaces: a T of each, if it has given one. The zero value keeps nothing; it is
// not copied. Like all that is about threads it belongs to the tracer's goroutine.
//
// What must hold:
//
//   - Each Kept has its own place in a holder, found by the Kept's address. So nobody comes to what another keeps, or takes it for a T.
//   - What is kept lies in the holder and goes with it. Nobody has to notice that a thread has ended, was let go or has executed a
//     program. Whoever still speaks of a holder that the tracer has forgotten finds what was kept: the handler of a thread that another
//     one's exec has ended, or a forked child whose parent's address space has gone before the child was first seen.
type Kept[T any] struct{ peg }

// peg is what tells one Kept from another. It is not empty: values of size zero may share an address.
type peg struct{ _ byte }

// Holder is a *Thread or a *Space.
type Holder interface{ keeps() *[]keeping }

// keeping is one thing that a holder keeps.
type keeping struct {
	at   *peg // of a Kept[T]
	what any  // a *T
}

func (th *Thread) keeps() *[]keeping { return &th.kept }

func (s *Space) keeps() *[]keeping { return &s.kept }

// Of is what is kept of h, nil if that is nothing.
func (k *Kept[T]) Of(h Holder) *T {
	kept := *h.keeps()
	if i := k.find(kept); i >= 0 {
		return kept[i].what.(*T) // it is of k, which has put it there
	}
	return nil
}

// Keep keeps what of h from now on; nil: nothing.
func (k *Kept[T]) Keep(h Holder, what *T) {
	kept := h.keeps()
	switch i := k.find(*kept); {
	case what == nil && i >= 0:
		*kept = slices.Delete(*kept, i, i+1)
	case what == nil:
	case i >= 0:
		(*kept)[i].what = what
	default:
		*kept = append(*kept, keeping{&k.peg, what})
	}
}

func (p *peg) find(kept []keeping) int {
	for i := range kept {
		if kept[i].at == p {
			return i
		}
	}
	return -1
}

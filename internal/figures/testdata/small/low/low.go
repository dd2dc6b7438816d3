// Package low has figures that are known.
package low

// Limits have a comment that is about both.
const (
	Most  = 9
	Least = 1
)

var Bare = Most

// Pile has one field of every kind.
type Pile[T any] struct {
	base
	*Other
	open, shut bool
	byName     map[string]T
	next       *Pile[T]
	rest       []*Other
}

type base struct{}

// Other has no fields.
type Other struct{}

// Push has a comment.
func (p *Pile[T]) Push() {}

func (p Pile[T]) Pop() {}

func (base) Hidden() {}

// Paths has eleven more ways than one.
func Paths(n int, c chan int) {
	if n > 1 && n < 5 || n == 7 {
		n++
	}
	for range n {
		for n > 0 {
			n--
		}
	}
	switch n {
	case 1, 2:
	case 3:
	default:
	}
	select {
	case <-c:
	case c <- 1:
	default:
	}
	func() {
		if n == 0 {
			return
		}
	}()
	_ = n == 1 || n == 2
}

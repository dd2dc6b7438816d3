package main

import (
	"errors"
	"io/fs"
)

type Point struct{ X, Y int }
type Deep struct {
	Name string
	At   Point
	ok   bool
}
type Named int

var sink int

//go:noinline
func Scalars(a int, b uint8, c bool, d float64, e float32, f rune, n Named) {
	sink += a + int(b) + int(d)
}

//go:noinline
func Strings(_ int, s string, long string, empty string, b []byte, _ bool) { sink += len(s) + len(b) }

//go:noinline
func Slices(s []int, t []string, none []int, big []int) { sink += len(s) + len(t) }

//go:noinline
func Structs(p Point, d Deep, one [1]int, two [2]int, z struct{}, c complex128) { sink += p.X + two[1] }

//go:noinline
func Pointers(p *Point, q *Point, m map[string]int, c chan int, f func(), e error, none error, any interface{}) {
	sink += p.X
}

//go:noinline
func Many(a, b, c, d, e, f, g, h, i, j int, s string) { sink += a + j }

//go:noinline
func (p *Point) Move(dx, dy int) { p.X += dx; p.Y += dy }

//go:noinline
func Generic[T any](a T, b []T, c int) { sink += c + len(b) }

type Box[T any] struct{ v T }

//go:noinline
func (b *Box[T]) Put(v T, n int) { b.v = v; sink += n }

func main() {
	Scalars(-1, 200, true, 2.5, 1.25, 'x', 9)
	Strings(1, "hello", "0123456789012345678901234567890123456789012345678901234567890123456789", "", []byte("raw"), true)
	Slices([]int{1, 2, 3}, []string{"a", "b"}, nil, make([]int, 100))
	Structs(Point{1, 2}, Deep{"n", Point{3, 4}, true}, [1]int{5}, [2]int{6, 7}, struct{}{}, 1+2i)
	Pointers(&Point{1, 2}, nil, nil, nil, nil, &fs.PathError{Op: "open", Err: errors.New("x")}, nil, Named(3))
	Many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "eleven")
	(&Point{1, 2}).Move(3, 4)
	Generic("text", []string{"x"}, 5)
	(&Box[float64]{}).Put(2.5, 6)
}

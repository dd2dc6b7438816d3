package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

type Point struct{ X, Y int }
type Deep struct {
	Name string
	At   Point
	ok   bool
}
type Named int
type Code struct{ n int }

func (c *Code) Error() string { return "code" }

var sink int
var calls = map[string]func(){}

//go:noinline
func Nothing() { sink++ }

//go:noinline
func Int(v int) int { return v - 100 }

//go:noinline
func Byte() uint8 { return 200 }

//go:noinline
func Float() float64 { return 2.5 }

//go:noinline
func Pair() (int, string) { return 5, "five" }

//go:noinline
func Parse(s string) (n int, err error) {
	if s == "" {
		return -1, errors.New("it is empty")
	}
	return len(s), nil
}

//go:noinline
func Wrap(err error) error { return fmt.Errorf("wrapped: %w", err) }

//go:noinline
func Typed() error { return &Code{7} }

//go:noinline
func Errno() error { return syscall.ENOENT }

//go:noinline
func PathError() (fs.File, error) { return nil, &fs.PathError{Op: "open", Err: errors.New("x")} }

//go:noinline
func Any(i int) any {
	switch i {
	case 0:
		return Named(-3)
	case 1:
		return "text"
	case 2:
		return 1.5
	}
	return true
}

//go:noinline
func Slices() ([]int, []byte, []string) { return []int{1, 2, 3}, []byte("raw"), nil }

//go:noinline
func Structs() (Point, Deep, complex128) { return Point{1, 2}, Deep{"n", Point{3, 4}, true}, 1 - 2i }

//go:noinline
func Arrays(a [2]int, b int) (one [1]int, two [2]int, ok bool, f float32) {
	return [1]int{b}, [2]int{a[1], a[0]}, true, 1.25
}

//go:noinline
func Many(s string) (a, b, c, d, e, f, g, h, i, j int, text string) {
	return 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, s
}

//go:noinline
func Spilled(x [3]int, s string) ([3]int, string, [2]string) { return x, s, [2]string{"p", "q"} }

func Inlined(v int) (double int, err error) { return 2 * v, nil }

//go:noinline
func (p *Point) Moved(dx int) Point { return Point{p.X + dx, p.Y} }

//go:noinline
func Generic[T any](a T, b [2]int) (T, [2]int, int) { return a, b, 6 }

func main() {
	Nothing()
	sink += Int(58) + int(Byte()) + int(Float())
	Pair()
	_, err := Parse("")
	Parse("four")
	Wrap(err)
	Typed()
	Errno()
	PathError()
	for i := range 4 {
		Any(i)
	}
	Slices()
	Structs()
	Arrays([2]int{7, 8}, 9)
	Many("eleven")
	Spilled([3]int{1, 2, 3}, "s")
	n, _ := Inlined(sink)
	call := Inlined
	calls["x"] = func() { call(n) }
	calls["x"]()
	(&Point{1, 2}).Moved(3)
	Generic("text", [2]int{4, 5})
}

// Command govalues has Go functions of many results: as cvalues.c.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Point is a structure.
type Point struct{ X, Y int }

//go:noinline
func negative(v int) int { return -v }

//go:noinline
func half(v int) float64 { return float64(v) / 2 }

//go:noinline
func parse(s string, v int) (n int, err error) {
	if v%2 == 0 {
		return -1, errors.New("it is even")
	}
	return len(s) + v, nil
}

//go:noinline
func pair(v int) (int, string) { return v, strconv.Itoa(v) + "!" }

//go:noinline
func list(v int) []int { return []int{v, v + 1, v + 2} }

//go:noinline
func point(v int) Point { return Point{v, -v} }

//go:noinline
func (p *Point) Moved(v int) (moved Point, ok bool) { return Point{p.X + v, p.Y}, true }

//go:noinline
func array(v int) ([3]int, string) { return [3]int{v, v, v}, "on the stack" }

//go:noinline
func deep(v int) int {
	var frame [64]int
	frame[v%64] = v
	if v == 0 {
		return 0
	}
	return deep(v-1) + frame[v%64] - v + 1
}

func call(v int) int {
	fmt.Printf("main.negative %d\n", negative(v))
	fmt.Printf("main.half %v\n", half(v))
	if n, err := parse("text", v); err != nil {
		fmt.Printf("main.parse (n=%d, err=(*errors.errorString)(%q))\n", n, err.Error())
	} else {
		fmt.Printf("main.parse (n=%d, err=nil)\n", n)
	}
	n, s := pair(v)
	fmt.Printf("main.pair (%d, %q)\n", n, s)
	l := list(v)
	fmt.Printf("main.list []int{%d, %d, %d}\n", l[0], l[1], l[2])
	fmt.Printf("main.point main.Point{X: %d, Y: %d}\n", point(v).X, -v)
	p, ok := (&Point{1, 2}).Moved(v)
	fmt.Printf("main.(*Point).Moved (moved=main.Point{X: %d, Y: %d}, ok=%v)\n", p.X, p.Y, ok)
	a, s := array(v)
	fmt.Printf("main.array ({%d, %d, %d}, %q)\n", a[0], a[1], a[2], s)
	c := make(chan int)
	go func() { c <- deep(v) }()
	return <-c
}

func main() {
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var v int
		if k, _ := fmt.Sscanf(in.Text(), "call %d", &v); k == 1 {
			fmt.Println("ret", call(v))
		}
	}
	fmt.Println("right")
}

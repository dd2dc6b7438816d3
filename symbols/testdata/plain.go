package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
)

type T struct{ n int }

//go:noinline
func (t *T) Method(x int) int {
	f := func() int { return t.n + x }
	return call(f)
}

//go:noinline
func call(f func() int) int { return f() }

//go:noinline
func Map[A, B any](a A, f func(A) B) B { return f(a) }

func main() {
	t := &T{1}
	s := Map(t.Method(2), func(n int) string { return fmt.Sprint(n) })
	s += fmt.Sprint(Map(s, func(s string) int { return len(s) }))
	fmt.Printf("main.call %#x\n", reflect.ValueOf(call).Pointer())
	fmt.Printf("main.main %#x\n", reflect.ValueOf(main).Pointer())
	fmt.Printf("fmt.Println %#x\n", reflect.ValueOf(fmt.Println).Pointer())
	fmt.Printf("main.(*T).Method %#x\n", reflect.ValueOf((*T).Method).Pointer())
	fmt.Println("ready", s)
	bufio.NewReader(os.Stdin).ReadString(0)
}

// Command gosrv is the Go fixture. "call V" prints "ret R"; "threads N M" calls
// target M times in each of N goroutines and prints "sum S count C"; "deep V" calls
// a function V levels deep, so that the goroutine's stack is copied, and prints
// "ret R".
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
)

//go:noinline
func target(v int64) int64 { return v / 3 }

// T has a method to probe.
type T struct{ n int64 }

//go:noinline
func (t *T) Add(v int64) int64 { t.n += v; return t.n }

//go:noinline
func pair(v int64, s string) (int64, string) { return v + int64(len(s)), s[1:] }

//go:noinline
func deep(v int64) int64 {
	var frame [128]int64
	frame[v%128] = v
	if v == 0 {
		return 0
	}
	return deep(v-1) + frame[v%128] - v + 1
}

//go:noinline
func panics(v int64) (r int64) {
	defer func() { r = recover().(int64) }()
	panic(v + 1)
}

var wrong int

func check(ok bool, what string) {
	if !ok {
		wrong++
		fmt.Fprintln(os.Stderr, "wrong:", what)
	}
}

func call(v int64) int64 {
	t := T{n: 1}
	n, s := pair(v, "four")
	check(t.Add(v) == v+1, "method")
	check(n == v+4 && s == "our", "two results")
	check(panics(v) == v+1, "recovered panic")
	return target(v)
}

func threads(n, m int64) (sum, count int64) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			var s int64
			for i := range m {
				s += target(i)
			}
			mu.Lock()
			sum, count = sum+s, count+m
			mu.Unlock()
		})
	}
	wg.Wait()
	return sum, count
}

func main() {
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var v, n int64
		if k, _ := fmt.Sscanf(in.Text(), "call %d", &v); k == 1 {
			fmt.Println("ret", call(v))
		} else if k, _ := fmt.Sscanf(in.Text(), "threads %d %d", &n, &v); k == 2 {
			sum, count := threads(n, v)
			fmt.Println("sum", sum, "count", count)
		} else if k, _ := fmt.Sscanf(in.Text(), "deep %d", &v); k == 1 {
			c := make(chan int64)
			go func() { c <- deep(v) }()
			r := <-c
			check(r == v, "deep recursion")
			fmt.Println("ret", r)
		}
	}
	if wrong > 0 {
		fmt.Println("wrong", wrong)
		os.Exit(1)
	}
	fmt.Println("right")
}

// Command gocgo calls between Go and C: "run CASE N" plays N rounds of a case and says
// "ran CASE N sum S"; "loop CASE" says "looping" and plays rounds until the next line.
package main

import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var wrong atomic.Int64

func check(ok bool, format string, args ...any) {
	if !ok && wrong.Add(1) <= 10 {
		fmt.Fprintf(os.Stderr, "wrong: "+format+"\n", args...)
	}
}

// cbGo is what C calls: it goes down to Go's stack, grows it, and calls C again.
//
//export cbGo
func cbGo(v C.long) C.long {
	if v == 13 {
		cbPanic(v)
	}
	return C.long(cbDown(100) + inner(int(v)))
}

//go:noinline
func cbPanic(v C.long) { panic(int(v)) }

//go:noinline
func cbDown(n int) int {
	var frame [64]int
	frame[n%64] = n
	if n == 0 {
		runtime.Gosched()
		return 0
	}
	return cbDown(n-1) + frame[n%64] - n + 1
}

func callRound(i int) int {
	i %= 10
	r := cgCall(i)
	check(r == 2*i+102, "called %d", r)
	return r
}

// A panic from Go through C to Go.
//
//go:noinline
func cgRecover(v int) (r int) {
	defer func() { r = recover().(int) }()
	return cgCall(v)
}

func panicRound(i int) int {
	r := cgRecover(13)
	check(r == 13, "recovered %d", r)
	return r + i
}

func threadsRound(i int) int {
	var wg sync.WaitGroup
	for v := range 10 {
		wg.Go(func() {
			r := cgCall(v)
			check(r == 2*v+102, "called %d in a thread", r)
		})
	}
	wg.Wait()
	return i
}

var cases = map[string]func(i int) int{"call": callRound, "panic": panicRound, "threads": threadsRound}

func main() {
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		close(lines)
	}()
	fmt.Println("ready")
	for line := range lines {
		var name string
		var n, sum int
		if k, _ := fmt.Sscanf(line, "run %s %d", &name, &n); k == 2 {
			for i := range n {
				sum += cases[name](i)
			}
			fmt.Println("ran", name, n, "sum", sum)
		} else if k, _ := fmt.Sscanf(line, "loop %s", &name); k == 1 {
			fmt.Println("looping")
			for stop := false; !stop; n++ {
				cases[name](n % 1000)
				select {
				case <-lines:
					stop = true
				default:
				}
			}
			fmt.Println("looped", name, n)
		}
	}
	if n := wrong.Load(); n > 0 {
		fmt.Println("wrong", n)
		os.Exit(1)
	}
	fmt.Println("right")
}

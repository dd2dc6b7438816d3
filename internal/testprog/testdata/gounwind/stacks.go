package main

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// Recursion that copies the stack several times, in a new goroutine.

//go:noinline
func grDown(n int) int {
	var frame [64]int
	frame[n%64] = n
	if n == 0 {
		return 0
	}
	return grDown(n-1) + frame[n%64] - n + 1
}

func growRound(i int) int {
	done := make(chan int)
	go func() { done <- grDown(500) }()
	r := <-done
	check(r == 500, "grown %d", r)
	return r + i
}

// A garbage collection, which scans the stacks and shrinks them, inside calls that hold
// the only pointers to what they made.

//go:noinline
func gcInner(list []*int) int {
	runtime.GC()
	sum := 0
	for _, p := range list {
		sum += *p
	}
	return sum
}

//go:noinline
func gcOuter(n int) int {
	var list []*int
	for v := range n {
		list = append(list, &v)
	}
	return gcInner(list) + *list[n-1]
}

func collectRound(i int) int {
	done := make(chan int)
	go func() {
		grDown(200)
		done <- gcOuter(20)
	}()
	r := <-done
	check(r == 190+19, "collected %d", r)
	return r + i
}

// Goroutines that are locked to their threads, and let go again.

//go:noinline
func loInner(v int) int {
	runtime.LockOSThread()
	runtime.Gosched()
	return v + 1
}

//go:noinline
func loOuter(v int) int {
	r := loInner(v)
	runtime.UnlockOSThread()
	runtime.Gosched()
	return r + 1
}

func lockedRound(i int) int { return i + gather(20, loOuter, func(v int) int { return v + 2 }) }

// Goroutines that change threads in the middle of their calls.

//go:noinline
func miInner(v int) int {
	for range 3 {
		runtime.Gosched()
	}
	return 2 * v
}

//go:noinline
func miOuter(v int) int { runtime.Gosched(); return miInner(v) + 1 }

func migrateRound(i int) int {
	return i + gather(50, miOuter, func(v int) int { return 2*v + 1 })
}

// gather calls f in n goroutines and returns the sum of what they return.
func gather(n int, f, want func(int) int) int {
	var sum atomic.Int64
	var wg sync.WaitGroup
	for v := range n {
		wg.Go(func() {
			r := f(v)
			check(r == want(v), "%d of %d", r, v)
			sum.Add(int64(r))
		})
	}
	wg.Wait()
	return int(sum.Load())
}

// 10,000 goroutines that wait in one function until all are there.

//go:noinline
func blWait(all *sync.WaitGroup, gate chan struct{}, v int) int {
	all.Done()
	<-gate
	return v
}

func blockedRound(i int) int {
	const n = 10_000
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Add(n)
	go func() { all.Wait(); close(gate) }()
	return i + gather(n, func(v int) int { return blWait(&all, gate, v) }, func(v int) int { return v })
}

// A loop without calls, which only a signal can preempt, while others collect garbage.

//go:noinline
func prSpin(stop *atomic.Bool, v int) int {
	for i := v; ; i++ {
		if stop.Load() {
			return v + min(i-v, 0)
		}
	}
}

func preemptRound(i int) int {
	var stop atomic.Bool
	go func() {
		for range 3 {
			runtime.GC()
		}
		stop.Store(true)
	}()
	return i + gather(3, func(v int) int { return prSpin(&stop, v) }, func(v int) int { return v })
}

// The head of a loop is the function's first instruction.
//
//go:noinline
func heLoop(left *atomic.Int64) int {
	for left.Add(-1) > 0 {
	}
	return 1
}

func headRound(i int) int {
	var left atomic.Int64
	left.Store(50)
	r := heLoop(&left)
	check(left.Load() == 0, "%d turns left", left.Load())
	return r + i
}

// More results than there are registers for them, of all kinds.

//go:noinline
func rsMany(v int) (a, b, c, d, e, f, g int, s string, x, y float64, err error, h, i, j int) {
	if v%2 == 1 {
		err = fmt.Errorf("odd %d", v)
	}
	return v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, strings.Repeat("x", v%5), float64(v) / 2, 1.5, err, -v, -v - 1, -v - 2
}

type pair struct {
	n    int32
	text string
	sub  [1]float32
}

//go:noinline
func rsStruct(v int) (pair, bool) {
	return pair{int32(v), "t", [1]float32{float32(v)}}, v > 3
}

func resultsRound(v int) int {
	a, b, c, d, e, f, g, s, x, y, err, h, i, j := rsMany(v)
	check(a+b+c+d+e+f+g == 7*v+21 && len(s) == v%5 && x == float64(v)/2 && y == 1.5, "results of %d", v)
	check((err != nil) == (v%2 == 1) && h+i+j == -3*v-3, "more results of %d", v)
	p, big := rsStruct(v)
	check(p == pair{int32(v), "t", [1]float32{float32(v)}} && big == (v > 3), "struct of %d", v)
	return a + j
}

// Iterators: calls that are handed from one goroutine to another and back, with a panic
// through the hand-over.

//go:noinline
func itSeq(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for v := range n {
			if !itYield(yield, v) {
				return
			}
		}
		panic("end")
	}
}

//go:noinline
func itYield(yield func(int) bool, v int) bool { return yield(v) }

//go:noinline
func itNext(next func() (int, bool)) (v int, ok bool) {
	defer func() {
		if recover() != nil {
			v, ok = -1, false
		}
	}()
	return next()
}

func iterateRound(i int) int {
	next, stop := iter.Pull(itSeq(4))
	sum := 0
	for v, ok := itNext(next); ok; v, ok = itNext(next) {
		sum += v
	}
	stop()
	next, stop = iter.Pull(itSeq(4))
	v, ok := itNext(next)
	stop() // its call of yield returns false
	check(sum == 6 && v == 0 && ok, "iterated %d, %d", sum, v)
	return sum + i
}

// Closures, methods and interfaces.

type adder int

//go:noinline
func (a adder) clAdd(v int) int { return int(a) + v }

//go:noinline
func clApply(f func(int) int, v int) int { return f(v) }

func closuresRound(i int) int {
	a := adder(i)
	var iface interface{ clAdd(int) int } = &a
	r := clApply(a.clAdd, 1) + clApply(func(v int) int { return iface.clAdd(v) }, 2)
	check(r == 2*i+3, "closures %d", r)
	return r
}

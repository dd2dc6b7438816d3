package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// A panic through one frame, recovered in the next, whose result its deferred call sets.

//go:noinline
func reInner(v int) int {
	if v%2 == 1 {
		panic(v)
	}
	return v
}

//go:noinline
func reMid(v int) int { return reInner(v) + 1 }

//go:noinline
func reOuter(v int) (r int) {
	defer func() {
		if p := recover(); p != nil {
			r = -p.(int)
		}
	}()
	return reMid(v)
}

func recoverRound(i int) int {
	r := reOuter(2*i) + reOuter(2*i+1)
	check(r == 0, "recovered %d", r)
	return r + i
}

// A panic through 200 frames, some with deferred calls, on a stack that had to grow.

//go:noinline
func dpDown(n int, ran *int) int {
	if n%10 == 0 {
		defer dpDefer(ran)
	}
	if n == 0 {
		panic(errors.New("bottom"))
	}
	return dpDown(n-1, ran) + 1
}

//go:noinline
func dpDefer(ran *int) { *ran++ }

//go:noinline
func dpOuter() (ran int, err error) {
	defer func() { err, _ = recover().(error) }()
	return dpDown(199, &ran), nil
}

func deepRound(i int) int {
	done := make(chan int)
	go func() {
		ran, err := dpOuter()
		check(err != nil && err.Error() == "bottom", "deep panic: %v", err)
		done <- ran
	}()
	ran := <-done
	check(ran == 20, "%d deferred calls", ran)
	return ran + i
}

// A deferred call panics while a panic is under way; another recovers and panics again.

//go:noinline
func neInner(v int) {
	defer func() { panic(fmt.Sprint("second ", v)) }()
	panic("first")
}

//go:noinline
func neMid(v int) {
	defer func() { panic(fmt.Sprint(recover(), " third")) }()
	neInner(v)
}

//go:noinline
func neOuter(v int) (s string) {
	defer func() { s = fmt.Sprint(recover()) }()
	neMid(v)
	return "not here"
}

func nestedRound(i int) int {
	s := neOuter(i)
	check(s == fmt.Sprint("second ", i, " third"), "nested panic: %s", s)
	return len(s)
}

// runtime.Goexit from two frames down, with deferred calls.

//go:noinline
func geInner(left *int) {
	defer func() { *left++ }()
	runtime.Goexit()
}

//go:noinline
func geOuter(left *int) {
	defer func() { *left += 10 }()
	geInner(left)
	*left = -1
}

func goexitRound(i int) int {
	done := make(chan int)
	go func() {
		left := 0
		defer func() { done <- left }()
		geOuter(&left)
	}()
	left := <-done
	check(left == 11, "goexit left %d", left)
	return left + i
}

// What a frame sees of its callers.

//go:noinline
func caInner() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var names []string
	for {
		f, more := frames.Next()
		names = append(names, f.Function)
		if !more {
			return strings.Join(names, " ")
		}
	}
}

//go:noinline
func caMid() (s string) {
	s = caInner()
	return
}

//go:noinline
func caOuter() (s string) {
	s = caMid()
	stack := make([]byte, 4096)
	text := string(stack[:runtime.Stack(stack, false)])
	check(strings.Contains(text, "main.caOuter(") && strings.Contains(text, "main.callersRound("), "stack:\n%s", text)
	return
}

func callersRound(i int) int {
	s := caOuter()
	check(strings.HasPrefix(s, "main.caInner main.caMid main.caOuter main.callersRound main.main "), "callers %s", s)
	return i
}

// A panic that nobody recovers: the traceback goes to the standard output.

//go:noinline
func crInner(v int) int { return []int{1, 2, 3}[v] }

//go:noinline
func crOuter(v int) int { return crInner(v) + 1 }

func crashRound(i int) int {
	check(syscall.Dup2(1, 2) == nil, "dup2")
	return crOuter(i + 3)
}

// os.Exit inside a deferred call of a panic.

//go:noinline
func exInner() { panic("exit") }

//go:noinline
func exOuter() {
	defer func() { os.Exit(7) }()
	exInner()
}

func exitRound(int) int { exOuter(); return 0 }

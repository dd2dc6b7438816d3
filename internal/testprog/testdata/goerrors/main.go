// Command goerrors has functions that return errors, and tells what it gets.
//
//	open PATH     os.OpenFile: prints what the error is, by every question that programs ask
//	call NAME     calls one of the functions below, and prints its results
//	keep          what "open" got last is kept in a structure on the heap; "kept" prints it
//	wrap          keeps fmt.Errorf("wrapped: %w", the last error) instead
//	change        os.OpenFile's last *fs.PathError gets another path, made on the heap, as os.RemoveAll does
//	storm N M     N goroutines open M files each while memory is collected all the time, and use the errors;
//	              prints "opened O failed F", F being errors that were as they must be
//	collect       collects twice
//	exec          executes the program anew
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Code is an error that is a structure, Level one that is a number, Words one that is text.
type Code struct {
	Number int
	Why    string
	Inner  error
}

func (c Code) Error() string { return fmt.Sprintf("code %d: %s (%v)", c.Number, c.Why, c.Inner) }

type Level int8

func (l Level) Error() string { return fmt.Sprintf("level %d", int8(l)) }

type Words string

func (w Words) Error() string { return "words " + string(w) }

type Pair struct {
	A int
	B float64
}

var ErrMine = errors.New("an error of mine")

var ErrLater error

//go:noinline
func Many(n int, name string) (a int8, s string, f float64, b []byte, p *Pair, at Pair, ok bool, err error) {
	return int8(n), name, 1.5, []byte(name), &Pair{n, 2}, Pair{n, 3}, true, nil
}

//go:noinline
func Spilled(n int) (big [3]int, f float32, err error, last uint16) {
	return [3]int{n, n, n}, 0.5, nil, 7
}

//go:noinline
func Number() syscall.Errno { return 0 }

//go:noinline
func Concrete() *fs.PathError { return nil }

//go:noinline
func NetError() net.Error {
	if calls.Load() < 0 {
		return &net.OpError{Op: "never"}
	}
	return nil
}

//go:noinline
func NoError(n int) (int, string) { return n, "text" }

//go:noinline
func Nothing() { calls.Add(1) }

//go:noinline
func (p *Pair) Method(k float64) (float64, error) { return k * p.B, nil }

//go:noinline
func Generic[T any](v T) (T, error) { return v, nil }

func Inlined(n int) (int, error) {
	if n%7 == 8 {
		return 0, ErrMine
	}
	return n*n + len(os.Args), nil
}

var inlined = Inlined

// deep needs a large stack, so that its check fails on a new goroutine's.
//
//go:noinline
func deep(n int) (int, error) {
	var frame [4096]byte
	frame[n%4096] = 1
	calls.Add(1)
	return n + int(frame[(n+1)%4096]), nil
}

//go:noinline
func small(n int) (int, error) { return n, ErrLater }

var calls atomic.Int64

// used makes errors of all the types, so that the program has their interface tables.
func used(n int) []error {
	return []error{Code{n, "c", ErrMine}, &Code{Number: n}, Level(n), Words("w"), syscall.Errno(n),
		fmt.Errorf("used: %w", ErrMine), &net.OpError{Op: "used", Err: io.EOF}, &fs.PathError{Op: "used", Err: ErrMine}}
}

func describe(err error) string {
	if err == nil {
		return "nil"
	}
	kind := fmt.Sprintf("%T", err)
	var all []string
	for _, x := range []struct {
		name string
		is   error
	}{{"NotExist", fs.ErrNotExist}, {"Permission", fs.ErrPermission}, {"EOF", io.EOF}, {"ENOSPC", syscall.ENOSPC},
		{"Mine", ErrMine}, {"Timeout", os.ErrDeadlineExceeded}} {
		if errors.Is(err, x.is) {
			all = append(all, x.name)
		}
		if err == x.is {
			all = append(all, "=="+x.name)
		}
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		all = append(all, "op="+pe.Op+" path="+pe.Path)
	}
	return fmt.Sprintf("%s %q [%s]", kind, err.Error(), strings.Join(all, " "))
}

type node struct {
	err  error
	next *node
	pad  [64]byte
}

var kept *node

func open(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err == nil {
		f.Close()
	}
	return err
}

// storm uses errors in all the ways that the collector and the stack's moves could harm.
func storm(n, m int) (opened, failed int64) {
	old := debug.SetGCPercent(1)
	defer debug.SetGCPercent(old)
	stop := make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	var wg sync.WaitGroup
	var o, f atomic.Int64
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var list *node
			for j := range m {
				path := fmt.Sprintf("/dev/null-%d-%d", i, j)
				err := open("/dev/null")
				if err == nil {
					o.Add(1)
					continue
				}
				list = &node{err: err, next: list}
				check(grown(40, err) == err && err.Error() != "" && path != "", "an error on a stack that grows")
			}
			for ; list != nil; list = list.next {
				if errors.Is(list.err, fs.ErrNotExist) {
					f.Add(1)
				}
			}
		}()
	}
	wg.Wait()
	stop <- true
	return o.Load(), f.Load()
}

//go:noinline
func grown(n int, err error) error {
	var frame [256]byte
	frame[n] = 1
	if n == 0 {
		return err
	}
	if grown(n-1, err) != err {
		frame[0]++
	}
	return err
}

func call(name string) string {
	switch name {
	case "many":
		a, s, f, b, p, at, ok, err := Many(3, "name")
		return fmt.Sprintf("%d %q %g %q %v %v %v %s", a, s, f, b, p, at, ok, describe(err))
	case "spilled":
		big, f, err, last := Spilled(4)
		return fmt.Sprintf("%v %g %d %s", big, f, last, describe(err))
	case "number":
		return fmt.Sprintf("%d", Number())
	case "concrete":
		if c := Concrete(); c != nil {
			return describe(c)
		}
		return "nil"
	case "neterror":
		if e := NetError(); e != nil {
			return fmt.Sprintf("%v %s", e.Timeout(), describe(e))
		}
		return "nil"
	case "noerror":
		n, s := NoError(5)
		return fmt.Sprintf("%d %q", n, s)
	case "nothing":
		before := calls.Load()
		Nothing()
		return fmt.Sprint(calls.Load() - before)
	case "method":
		f, err := (&Pair{1, 2}).Method(4)
		return fmt.Sprintf("%g %s", f, describe(err))
	case "generic":
		v, err := Generic(Pair{1, 2})
		s, serr := Generic("s")
		return fmt.Sprintf("%v %s %q %s", v, describe(err), s, describe(serr))
	case "deep":
		c := make(chan string)
		before := calls.Load()
		go func() {
			n, err := deep(1)
			c <- fmt.Sprintf("%d %s", n, describe(err))
		}()
		return fmt.Sprintf("%s ran %d", <-c, calls.Load()-before)
	case "small":
		n, err := small(2)
		return fmt.Sprintf("%d %s", n, describe(err))
	}
	return "?"
}

var wrong atomic.Int64

func check(ok bool, what string) {
	if !ok {
		wrong.Add(1)
		fmt.Fprintln(os.Stderr, "wrong:", what)
	}
}

func command(line string, last *error) {
	var n, m int
	what, arg, _ := strings.Cut(line, " ")
	switch what {
	case "open":
		*last = open(arg)
		fmt.Println("got", describe(*last))
	case "call":
		fmt.Println("got", call(arg))
	case "keep":
		kept = &node{err: *last, next: kept}
		fmt.Println("done")
	case "wrap":
		kept = &node{err: fmt.Errorf("wrapped: %w", *last), next: kept}
		fmt.Println("done")
	case "kept":
		for k := kept; k != nil; k = k.next {
			fmt.Println("kept", describe(k.err))
		}
		fmt.Println("done")
	case "change":
		var pe *fs.PathError
		if errors.As(*last, &pe) {
			pe.Path = strings.Repeat("x", 10) + pe.Path
		}
		fmt.Println("done")
	case "collect":
		runtime.GC()
		runtime.GC()
		fmt.Println("done")
	case "exec":
		fmt.Println("failed", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	case "storm":
		fmt.Sscanf(arg, "%d %d", &n, &m)
		o, f := storm(n, m)
		fmt.Println("opened", o, "failed", f)
	}
}

func main() {
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	check(len(used(1)) == 8, "used")
	a, _ := Inlined(os.Getpid())
	b, _ := inlined(os.Getpid())
	check(a == b, "inlined")
	fmt.Println("ready")
	var last error
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		command(in.Text(), &last)
	}
	if wrong.Load() > 0 {
		fmt.Println("wrong", wrong.Load())
		os.Exit(1)
	}
	fmt.Println("right")
}

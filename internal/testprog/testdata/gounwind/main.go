// Command gounwind is Go's ways of leaving a function and moving a stack. "run CASE N"
// plays N rounds of a case and says "ran CASE N sum S"; "loop CASE" says "looping" and
// plays rounds until the next line, then says "looped CASE N". A case's functions begin
// with its letters.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

var wrong atomic.Int64

func check(ok bool, format string, args ...any) {
	if !ok && wrong.Add(1) <= 10 {
		fmt.Fprintf(os.Stderr, "wrong: "+format+"\n", args...)
	}
}

// cases play one round; what they return depends on i.
var cases = map[string]func(i int) int{
	"grow":      growRound,
	"recover":   recoverRound,
	"deep":      deepRound,
	"nested":    nestedRound,
	"goexit":    goexitRound,
	"collect":   collectRound,
	"locked":    lockedRound,
	"migrate":   migrateRound,
	"blocked":   blockedRound,
	"preempt":   preemptRound,
	"head":      headRound,
	"callers":   callersRound,
	"results":   resultsRound,
	"iterate":   iterateRound,
	"closures":  closuresRound,
	"crash":     crashRound,
	"exitdefer": exitRound,
}

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

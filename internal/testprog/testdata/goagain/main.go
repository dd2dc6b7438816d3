// Command goagain makes calls that end without a return. "panics N" calls odd N times from one
// place, which panics every other time, and prints "sum S"; "goexit N" has N goroutines wait
// in hold at once, ends them there by Goexit, and prints "gone"; "hold N" calls hold N times in
// one goroutine and prints "ret R"; "exec N" runs N programs and prints "done".
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

//go:noinline
func odd(v int64) int64 {
	if v%2 != 0 {
		panic(v)
	}
	return double(v)
}

//go:noinline
func double(v int64) int64 { return v * 2 }

//go:noinline
func try(v int64) (r int64) {
	defer func() {
		if e := recover(); e != nil {
			r = -e.(int64)
		}
	}()
	r = odd(v)
	r++
	return r
}

func panics(n int64) (sum int64) {
	for i := range n {
		sum += try(i)
	}
	return sum
}

//go:noinline
func hold(c chan bool, started *sync.WaitGroup) int64 {
	if c == nil {
		return double(21)
	}
	started.Done()
	<-c
	runtime.Goexit()
	return 0
}

func goexit(n int64) {
	var started, ended sync.WaitGroup
	c := make(chan bool)
	started.Add(int(n))
	for range n {
		ended.Go(func() { hold(c, &started) })
	}
	started.Wait()
	close(c)
	ended.Wait()
}

func main() {
	runtime.GOMAXPROCS(4)
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var n int64
		if k, _ := fmt.Sscanf(in.Text(), "panics %d", &n); k == 1 {
			fmt.Println("sum", panics(n))
		} else if k, _ := fmt.Sscanf(in.Text(), "goexit %d", &n); k == 1 {
			goexit(n)
			fmt.Println("gone")
		} else if k, _ := fmt.Sscanf(in.Text(), "exec %d", &n); k == 1 {
			for range n {
				if err := exec.Command("/bin/true").Run(); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
			fmt.Println("done")
		} else if k, _ := fmt.Sscanf(in.Text(), "hold %d", &n); k == 1 {
			var r int64
			for range n {
				r = hold(nil, nil)
			}
			fmt.Println("ret", r)
		}
	}
	fmt.Println("right")
}

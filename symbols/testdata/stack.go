package main

import (
	"runtime"
	"strings"
)

var sink int

//go:noinline
func leaf(a, b int) int { return a*31 + b }

//go:noinline
func work(n int) int {
	if n == 0 {
		return leaf(1, 2)
	}
	var buf [40]int
	for i := range buf {
		buf[i] = leaf(i, n)
	}
	defer func() { sink += buf[n] }()
	return work(n-1) + buf[n] + strings.Index("hello world", "wor")
}

func main() {
	runtime.LockOSThread()
	work(3)
}

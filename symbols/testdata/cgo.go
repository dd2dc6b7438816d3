package main

// static int add(int a, int b) { return a + b; }
import "C"

import "fmt"

//go:noinline
func target(n int) int { return n + int(C.add(1, 2)) }

func main() {
	fmt.Println(target(1))
}

// Functions that are named like the parts which C's compilers split off.
package main

import "os"

//go:noinline
func cold(n int) int { return n + 1 }

//go:noinline
func warm(n int) int { return cold(n) + 1 }

func main() { os.Exit(warm(len(os.Args)) - 3) }

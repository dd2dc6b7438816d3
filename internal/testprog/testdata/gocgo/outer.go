package main

/*
extern long cbGo(long v);

__attribute__((noinline)) long cg_inner(long v) { return v + 1; }
__attribute__((noinline)) long cg_outer(long v) { return cg_inner(v) + cbGo(v); }
*/
import "C"

//go:noinline
func cgCall(v int) int { return int(C.cg_outer(C.long(v))) }

func inner(v int) int { return int(C.cg_inner(C.long(v))) }

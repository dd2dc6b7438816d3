// Package oracle holds tests only: random instructions of every class, each run in
// place and then under a probe, boosted and stepped, from the same random state. All
// that a program can see must be equal: registers, flags, x87, vector and mask
// registers, memory, segments, and the signal that ends the case with all it tells.
//
// A case is made from a seed and its number, so one line reproduces it:
//
//	go test ./internal/oracle -run Oracle -seed 7 -case 123
package oracle

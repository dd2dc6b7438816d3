// Package host chooses the architecture of the processes that this build can trace. It
// puts together the decoder and planner, the generator of our code, the compiler of
// programs, and the way in which Linux exchanges registers. No other room but those of
// arch knows which one it is.
//
// A nil value means that the architecture lacks that; breakpoints are used in its
// place. Supported tells whether processes can be traced at all.
package host

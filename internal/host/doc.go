// Package host says which architecture the processes have that this build can trace: what its machine
// code means, what makes code of ours for it, what compiles programs, and how Linux exchanges the
// registers of its threads. No other room but those of arch knows which one it is.
//
// What is nil an architecture does not have; then what needs it is done by breakpoints. Supported tells
// whether processes can be traced at all.
package host

// Package numbers tests that every value which is shown is right, or said to be not known: random programs whose values
// the tests know, made by the compilers that are installed, and traced.
package numbers

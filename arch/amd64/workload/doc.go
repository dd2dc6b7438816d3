// Package workload is the machine code of x86-64 that package bench measures probes of.
//
// Not part of the public promise: any version may change it.
package workload

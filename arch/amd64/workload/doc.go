// Package workload is the machine code of x86-64 that package bench measures probes of.
package workload

// Package returns holds tests only: programs that leave functions, and change stacks, in
// every way there is, while all their calls are followed by return probes. Each must give
// the results of an unprobed run, and every call must end as a return or as missed.
//
// All of them run with breakpoints where calls return to, and with their return addresses replaced.
//
// The same programs run under a naive tracer, which rewrites return addresses as the
// kernel's uretprobes do: the table says which of them it breaks.
package returns

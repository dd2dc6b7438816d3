package kprobes

// tsc is the processor's time-stamp counter, which programs in the target read as well.
func tsc() uint64

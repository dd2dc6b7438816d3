package linux

// Ticks is the processor's time-stamp counter, which programs in the target read as well.
func Ticks() uint64

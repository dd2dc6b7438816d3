// A library that comes and goes.
__attribute__((noinline, noipa)) long plugged(long v) { return v * 7; }

// The second function of one name.
__attribute__((noinline, noipa)) static long twin(long v) { return v + 2; }
__attribute__((noinline, noipa)) long other(long v) { return twin(v); }

// Another library for modules to load, with -shared -fPIC. It has no plugged.
__attribute__((noinline, noipa)) long other(long v) { return 31 * v + 2; }

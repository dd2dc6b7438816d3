// A library for edge to load, with -shared -fPIC.
long plugged(long v) { return 29 * v + 1; }

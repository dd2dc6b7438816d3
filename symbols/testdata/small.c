// The whole program is too small to have a list of places in its debug information.
__attribute__((noinline)) static int g(int unused, int b) { return b * 3; }
int f(int x) { return g(1, x); }
int main(void) { return f(5) != 15; }

// How a function prints "got NAME" and its arguments, flat: integers in decimal, floating-point
// numbers as their bits.
#include "prog.h"

static char line[1 << 14];
__attribute__((format(printf, 1, 2))) static void put(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = strlen(line);
	vsnprintf(line + n, sizeof line - n, fmt, ap);
	va_end(ap);
}
__attribute__((unused)) static void Z(long long v) { put(" %lld", v); }
__attribute__((unused)) static void U(unsigned long long v) { put(" %llu", v); }
__attribute__((unused)) static void S(const char *v) { put(" %s", v); }
__attribute__((unused)) static void F(float v) { unsigned b; memcpy(&b, &v, 4); put(" %08x", b); }
__attribute__((unused)) static void D(double v) { unsigned long b; memcpy(&b, &v, 8); put(" %016lx", b); }
__attribute__((unused)) static void B(const void *v, int n) { while (n--) put(" %d", *(const unsigned char *)v++); }
#define GOT(name, list) do { strcpy(line, "got " #name); list; put("\n"); CHECK(write(1, line, strlen(line)) > 0); } while (0)

/* One call of each shape that the System V ABI passes differently. */
#include <complex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum color { RED, GREEN = 5, BLUE = -1 };
typedef struct { int x, y; } point;
typedef struct { double a, b; } pair;
typedef struct { long n; double d; } mixed;
typedef struct { long a, b, c; } big;
typedef struct { float f; int i; } packed8;
typedef struct { char name[8]; } named;
typedef union { int i; float f; } either;

#define F __attribute__((noinline, noclone))
volatile int sink;

F void scalars(int i, unsigned char u, short s, long long l, bool b, char c, size_t z) { sink += i + u + s + (int)l + b + c + (int)z; }
F void floats(float f, double d, int i, long double ld, double e) { sink += (int)(f + d + i + ld + e); }
F void pointers(const char *s, void *p, int *ip, void (*fn)(void), const char *none) { sink += s[0] + (p == ip) + (fn == 0) + (none == 0); }
F void enums(enum color a, enum color b, enum color c) { sink += a + b + c; }
F void structs(point p, pair q, mixed m, packed8 k) { sink += p.x + (int)q.a + (int)m.n + k.i; }
F void memory(big b, int after, named n, either e) { sink += (int)b.a + after + n.name[0] + e.i; }
F void many(int a, int b, int c, int d, int e, int f, int g, char h, double x) { sink += a + b + c + d + e + f + g + h + (int)x; }
F big returns_big(int a) { big b = {a, 2, 3}; sink += a; return b; }
F void split(long a, long b, long c, long d, long e, mixed m, pair p, point q, int f) { sink += (int)(a + b + c + d + e + m.n + p.a + q.x + f); }
F void wide(__int128 w, int a) { sink += (int)w + a; }
F void cplx(float complex f, double complex d) { sink += (int)creal(f + d); }

F void nine(double a, double b, double c, double d, double e, double f, double g, double h, float i, int j) { sink += (int)(a + b + c + d + e + f + g + h + i) + j; }

typedef union { const int *i; const char *s; } address __attribute__((__transparent_union__));
F void transparent(int fd, address a, unsigned len) { sink += fd + (a.i == 0) + (int)len; }

int main(void)
{
	int n = 7;
	scalars(-42, 200, -3, 1LL << 40, true, 'A', 99);
	floats(1.5f, -2.25, 3, 4.5L, 5.5);
	pointers("say \"hi\"\n", (void *)0x1234, &n, (void (*)(void))0x10, 0);
	enums(GREEN, BLUE, (enum color)77);
	structs((point){1, 2}, (pair){3.5, 4.5}, (mixed){5, 6.5}, (packed8){7.5f, 8});
	memory((big){1, 2, 3}, 9, (named){"abc"}, (either){.i = 12});
	many(1, 2, 3, 4, 5, 6, 7, 'h', 8.5);
	sink += (int)returns_big(11).a;
	split(1, 2, 3, 4, 5, (mixed){6, 7.5}, (pair){8.5, 9.5}, (point){10, 11}, 12);
	wide(((__int128)1 << 64) | 2, 3);
	cplx(1.0f + 2.0f * I, 3.0 + 4.0 * I);
	nine(1, 2, 3, 4, 5, 6, 7, 8, 9.5f, 10);
	transparent(3, (const char *)0x1234, 16);
	return 0;
}

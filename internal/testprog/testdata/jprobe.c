// Functions with parameters of every class. "call NAME" calls one, which prints "got NAME" and
// its arguments, flat: integers in decimal, floating-point numbers as their bits. "sum" prints
// "ret R" of a function with stack arguments; "busy N" calls it N times in each of 4 threads
// and prints "did N"; "fork" has a child call it and prints what it exits with; "exec PATH"
// executes another program. With -DOTHER that function has another parameter.
#include "jprobe.h"
#include <complex.h>
#include <stdbool.h>
#undef I

typedef struct { int i; double d; } mixed;
typedef struct { float a, b, c; } float3;
typedef struct { long a; int b; double c; } large;
typedef struct { long a, b; } two;
typedef struct { short s[3]; char c; } array;
typedef struct { char m[2][3]; float f[2]; const char *text; } nested;
typedef struct { nested n; bool last; } deep;
typedef struct { char c[5]; } five;
typedef struct { unsigned low : 3, high : 29; } bits;
typedef union { int i; float f; } either;
typedef struct { long a, b, c; } __attribute__((aligned(16))) wide;
typedef struct { char c; int i; } __attribute__((packed)) packed;
typedef struct { char c; __int128 i; } __attribute__((packed)) tight;

REAL void none(void) { GOT(none, ); }
REAL void small(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f, long g, bool h, bool i)
{
	GOT(small, (Z(a), Z(b), Z(c), Z(d), Z(e), Z(f), Z(g), Z(h), Z(i)));
}
REAL void twenty(int a, double b, long c, double d, int e, double f, long g, double h, int i, double j,
		 long k, double l, int m, double n, long o, double p, int q, double r, long s, double t)
{
	GOT(twenty, (Z(a), D(b), Z(c), D(d), Z(e), D(f), Z(g), D(h), Z(i), D(j), Z(k), D(l), Z(m), D(n), Z(o), D(p), Z(q), D(r), Z(s), D(t)));
}
REAL void floats(float a, float b, float c, float d, float e, float f, float g, float h, float i, float j)
{
	GOT(floats, (F(a), F(b), F(c), F(d), F(e), F(f), F(g), F(h), F(i), F(j)));
}
REAL void structs(mixed a, float3 b, large c, array d, five e)
{
	GOT(structs, (Z(a.i), D(a.d), F(b.a), F(b.b), F(b.c), Z(c.a), Z(c.b), D(c.c), Z(d.s[0]), Z(d.s[1]), Z(d.s[2]), Z(d.c),
		      Z(e.c[0]), Z(e.c[1]), Z(e.c[2]), Z(e.c[3]), Z(e.c[4])));
}
// The register that is left does not do for the first structure, but for what follows it.
REAL void spilled(long a, long b, long c, long d, long e, two t, mixed f, large g, long h, float3 i)
{
	GOT(spilled, (Z(a), Z(b), Z(c), Z(d), Z(e), Z(t.a), Z(t.b), Z(f.i), D(f.d), Z(g.a), Z(g.b), D(g.c), Z(h), F(i.a), F(i.b), F(i.c)));
}
REAL void nests(deep a, int b)
{
	GOT(nests, (Z(a.n.m[0][0]), Z(a.n.m[0][1]), Z(a.n.m[0][2]), Z(a.n.m[1][0]), Z(a.n.m[1][1]), Z(a.n.m[1][2]), F(a.n.f[0]), F(a.n.f[1]),
		    S(a.n.text), Z(a.last), Z(b)));
}
REAL void texts(const char *a, char *b, const char *c, void *d)
{
	GOT(texts, (S(a), S(b ? b : "NULL"), Z((long)c), Z((long)d)));
}
REAL void complexes(float complex a, double complex b) { GOT(complexes, (F(creal(a)), F(cimag(a)), D(creal(b)), D(cimag(b)))); }
REAL large returns(int a, const char *b)
{
	GOT(returns, (Z(a), S(b)));
	return (large){ a, a, a };
}
REAL void variadic(int a, double b, ...) { GOT(variadic, (Z(a), D(b))); }
REAL void strange(long double a, __int128 b, bits c, either d, packed e, int f)
{
	unsigned raw;
	memcpy(&raw, &c, 4);
	GOT(strange, (B(&a, 10), B(&b, 16), Z(raw), Z(d.i), Z(e.c), Z(e.i), Z(f)));
}
REAL void aligned(int a, large x, wide b, int c, large y, tight d)
{
	GOT(aligned, (Z(a), Z(x.a), Z(x.b), D(x.c), Z(b.a), Z(b.b), Z(b.c), Z(c), Z(y.a), Z(y.b), D(y.c), Z(d.c), B(&d.i, 16)));
}

#ifdef OTHER
REAL long sum(double d) { return (long)d; }
static long call_sum(void) { return sum(8987654321); }
#else
REAL long sum(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	return a + 10 * (b + 10 * (c + 10 * (d + 10 * (e + 10 * (f + 10 * (g + 10 * (h + 10 * (i + 10 * j))))))));
}
static long call_sum(void) { return sum(1, 2, 3, 4, 5, 6, 7, 8, 9, 8); }
#endif

static void call(const char *name)
{
	deep deep = { { { { 1, 2, 3 }, { 4, 5, -6 } }, { 7.5, -8 }, "nested" }, true };
#define CALL(f, ...) if (!strcmp(name, #f)) f(__VA_ARGS__)
	CALL(none);
	CALL(small, -1, 255, -300, 65000, -70000, 4000000000, -5000000000, true, false);
	CALL(twenty, -1, 2.5, 3, -4.5, 5, 6.5, 7, 8.5, 9, 10.5, 11, 12.5, -13, 14.5, 15, 16.5, 17, 18.5, -19, 20.5);
	CALL(floats, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, -10.5);
	CALL(structs, (mixed){ 1, 2.5 }, (float3){ 3, 4, 5 }, (large){ 6, 7, 8.5 }, (array){ { 9, -10, 11 }, 12 }, (five){ { 1, 2, 3, 4, 5 } });
	CALL(spilled, 1, 2, 3, 4, 5, (two){ -1, -2 }, (mixed){ 6, 7.5 }, (large){ 8, 9, 10.5 }, 11, (float3){ 12, 13, 14 });
	CALL(nests, deep, 9);
	CALL(texts, "a text", NULL, (char *)4711, (void *)-1);
	CALL(complexes, 1.5f - 2.5f * _Complex_I, 3.5 + 4.5 * _Complex_I);
	CALL(returns, 5, "five");
	CALL(variadic, 1, 2.5, 3, 4.5);
	CALL(strange, -1.5L, -((__int128)1 << 70), (bits){ 5, 1234567 }, (either){ .f = -2 }, (packed){ 1, -2 }, 77);
	CALL(aligned, 1, (large){ -1, -2, -3 }, (wide){ 2, 3, 4 }, 5, (large){ 9, 9, 9 }, (tight){ 5, -6 });
}
static void *busy(void *n)
{
	for (long i = 0; i < (long)n; i++)
		CHECK(call_sum() == 8987654321);
	return NULL;
}

int main(void)
{
	char command[256], name[64], path[128];
	long n;
	say("ready");
	while (hear(command, sizeof command)) {
		if (sscanf(command, "call %63s", name) == 1) {
			call(name);
		} else if (!strcmp(command, "sum\n")) {
			say("ret %ld", call_sum());
		} else if (sscanf(command, "busy %ld", &n) == 1) {
			pthread_t t[4];
			for (int i = 0; i < 4; i++)
				t[i] = thread(busy, n);
			for (int i = 0; i < 4; i++)
				pthread_join(t[i], NULL);
			say("did %ld", n);
		} else if (!strcmp(command, "fork\n")) {
			int status;
			pid_t pid = fork();
			if (pid == 0)
				_exit(call_sum() != 8987654321);
			CHECK(waitpid(pid, &status, 0) == pid);
			say("status %d", status);
		} else if (sscanf(command, "exec %127s", path) == 1) {
			execl(path, path, NULL);
			CHECK(!"exec returned");
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

// What the selftests probe. "call NAME V" prints "ret R"; "many" calls f00 to fff; "open PATH"
// loads a library, "plug V" calls its function plugged, "close" unloads it.
#include "prog.h"
#include <dlfcn.h>

char text[] = "test";
long number = 0x1122334455667788;

REAL long foo(long v) { return 2 * v + 1; }
REAL long target(long v) { return v / 3; }
REAL long target2(long v) { return v / 3 + 1; }
REAL long length(const char *s) { return strlen(s); }
REAL long string(long v) { return length(text) + v; }
REAL long peek(const char *s, long v) { return s == NULL ? v : -v; }
REAL long good(long v) { return -peek(text, v); }
REAL long bad(long v) { return -peek((const char *)16, v); }
REAL long inner(long v) { return v * 5; }
REAL long outer(long v) { return inner(v) + 1; }
REAL long six(long a, long b, long c, long d, long e, long f) { return a + b + c + d + e + f; }
REAL long values(long v) { return six(v, v + 1, v + 2, -v, v * v, 7); }

// A name as the compiler gives it to a changed copy.
REAL long dotted(long v) __asm__("dotted.isra.0");
REAL long dotted(long v) { return v + 4; }

static REAL long twin(long v) { return v + 1; } // another is in twin.c
long other(long v);
REAL long twins(long v) { return twin(v) + other(v); }

// f00 to fff: 256 functions, by the two hexadecimal digits of their numbers.
#define ROW(m, h) m(h, 0) m(h, 1) m(h, 2) m(h, 3) m(h, 4) m(h, 5) m(h, 6) m(h, 7) \
	m(h, 8) m(h, 9) m(h, a) m(h, b) m(h, c) m(h, d) m(h, e) m(h, f)
#define ALL(m) ROW(m, 0) ROW(m, 1) ROW(m, 2) ROW(m, 3) ROW(m, 4) ROW(m, 5) ROW(m, 6) ROW(m, 7) \
	ROW(m, 8) ROW(m, 9) ROW(m, a) ROW(m, b) ROW(m, c) ROW(m, d) ROW(m, e) ROW(m, f)
#define DEFINE(h, l) REAL long f##h##l(long v) { return v + 0x##h##l; }
#define ENTRY(h, l) f##h##l,
ALL(DEFINE)
static long (*many[])(long) = { ALL(ENTRY) };

#define F(name) { #name, name }
static struct { const char *name; long (*f)(long); } funcs[] = {
	F(foo), F(target), F(target2), F(string), F(good), F(bad), F(outer), F(values), F(dotted), F(twins),
};

static void call(const char *name, long v)
{
	for (size_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
		if (!strcmp(funcs[i].name, name)) {
			say("ret %ld", funcs[i].f(v));
			return;
		}
	CHECK(!"known function");
	say("ret 0");
}

int main(void)
{
	char line[600], name[500];
	void *plug = NULL;
	long v, (*plugged)(long);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %63s %ld", name, &v) == 2) {
			call(name, v);
		} else if (!strcmp(line, "many\n")) {
			v = 0;
			for (size_t i = 0; i < sizeof many / sizeof *many; i++)
				v = many[i](v);
			say("ret %ld", v);
		} else if (sscanf(line, "open %499s", name) == 1) {
			plug = dlopen(name, RTLD_NOW);
			CHECK(plug != NULL);
			say("ret %d", plug != NULL);
		} else if (sscanf(line, "plug %ld", &v) == 1) {
			plugged = (long (*)(long))dlsym(plug, "plugged");
			CHECK(plugged != NULL);
			say("ret %ld", plugged(v));
		} else if (!strcmp(line, "close\n")) {
			say("ret %d", dlclose(plug));
		} else {
			CHECK(!"known command");
			say("ret 0");
		}
	}
	return verdict();
}

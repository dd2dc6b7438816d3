// Functions of many results. "call V" calls each, prints "NAME VALUE" for what it
// returned, as gokprobe shows it, and "ret R"; "fork V" calls one that returns twice, and
// prints "child PID" when the child has ended.
#include "prog.h"
#include <stdbool.h>

enum color { RED, GREEN, BLUE };
static const char *const colors[] = { "RED", "GREEN", "BLUE" };
typedef struct { int x, y; } point;
typedef struct { long n; double d; } mixed;
typedef struct { float a, b, c; } three;
typedef struct { long a, b, c; } big;

REAL int negative(long v) { return -v; }
REAL unsigned short small(long v) { return v; }
REAL bool truth(long v) { return v % 2; }
REAL double half(long v) { return v / 2.0; }
REAL float quarter(int v) { return v / 4.0f; }
REAL long double eighth(long v) { return v / 8.0L; }
REAL enum color color(long v) { return v % 3; }
REAL const char *text(const char *s, long v) { return s + v % 4; }
REAL point two_ints(long v) { return (point){v, -v}; }
REAL mixed int_double(long v) { return (mixed){v, v + 0.5}; }
REAL three three_floats(long v) { return (three){v, v + 1, v + 2.5f}; }
REAL big in_memory(big b, int v) { return (big){b.a + v, b.b + v, b.c + v}; }
REAL void nothing(long v) { CHECK(v >= 0); }
REAL long outer(long v) { return v ? outer(v - 1) + 1 : 0; }

REAL pid_t twice(long v) { CHECK(v > 0); return fork(); }

static pid_t forked(long v)
{
	int status;
	pid_t pid = twice(v);
	if (pid == 0)
		_exit(v);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == v);
	return pid;
}

static long call(long v)
{
	say("negative %d", negative(v));
	say("small %d", small(v));
	say("truth %s", truth(v) ? "true" : "false");
	say("half %g", half(v));
	say("quarter %g", quarter(v));
	say("eighth %Lg", eighth(v));
	say("color %s", colors[color(v)]);
	say("text \"%s\"", text("results", v));
	point p = two_ints(v);
	say("two_ints {x: %d, y: %d}", p.x, p.y);
	mixed m = int_double(v);
	say("int_double {n: %ld, d: %g}", m.n, m.d);
	three t = three_floats(v);
	say("three_floats {a: %g, b: %g, c: %g}", t.a, t.b, t.c);
	big b = in_memory((big){1, 2, 3}, v);
	say("in_memory {a: %ld, b: %ld, c: %ld}", b.a, b.b, b.c);
	nothing(v);
	return outer(v);
}

int main(void)
{
	char line[64];
	long v;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &v) == 1)
			say("ret %ld", call(v));
		else if (sscanf(line, "fork %ld", &v) == 1)
			say("child %d", forked(v));
		else
			CHECK(!"known command");
	}
	return verdict();
}

// Functions that measure how long they take. Commands: "quick V" calls quick, "nested V" calls nested, which calls inner five times; "waits V" calls
// waits, which says "waiting" and returns after the next line. Each prints "ret R around A inside B": nanoseconds from before the call to behind
// it, and in the function, 0 where that does not look.
#include "prog.h"
#include <time.h>

static long inside;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

REAL long inner(long v) { return v + 1; }
REAL long quick(long v) { return v / 3; }
REAL long nested(long v)
{
	long sum = 0;
	for (int i = 0; i < 5; i++)
		sum += inner(v);
	return sum;
}
REAL long waits(long v)
{
	char line[16];
	long began = now();
	say("waiting");
	CHECK(hear(line, sizeof line));
	inside = now() - began;
	return v + 2;
}

int main(void)
{
	char line[64], name[16];
	say("ready");
	while (hear(line, sizeof line)) {
		long v, ret, began;
		CHECK(sscanf(line, "%15s %ld", name, &v) == 2);
		inside = 0;
		began = now();
		ret = *name == 'q' ? quick(v) : *name == 'n' ? nested(v) : waits(v);
		say("ret %ld around %ld inside %ld", ret, now() - began, inside);
	}
	return verdict();
}

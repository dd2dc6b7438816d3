// A program with an errno of its own, in the way of old thread libraries: where it is takes more than an address
// to find. "go V" prints "R errno E 0 asked N", N being how often somebody has asked where it is.
#include "prog.h"
#undef errno

static int places[2], asked;

int *__errno_location(void)
{
	asked++;
	return &places[getpid() == gettid()];
}

REAL long fails(long v) { return v / 3; }

int main(void)
{
	char line[64];
	long v;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "go %ld", &v) != 1)
			continue;
		places[1] = asked = 0;
		long r = fails(v);
		say("%ld errno %d %d asked %d", r, places[1], places[0], asked);
	}
	return verdict();
}

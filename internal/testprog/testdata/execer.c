// "exec" executes this program anew from the main thread, "execthread" from another
// thread while more threads run, of which one has called foo; both print "ready G" with the generation. "call V"
// prints "ret R".
#include "prog.h"
#include <sched.h>

static char generation[16] = "0";

REAL long foo(long v) { return 13 * v + 1; }

static void *again(void *unused)
{
	char *args[] = { "execer", generation, NULL };
	sprintf(generation, "%d", atoi(generation) + 1);
	execv("/proc/self/exe", args);
	CHECK(!"exec returned");
	return NULL;
}

static long called;

static void *spin(void *unused)
{
	for (long n = 0;; n++) {
		CHECK(foo(n) == 13 * n + 1);
		SET(called, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char line[64];
	long v;
	if (argc > 1)
		strncpy(generation, argv[1], sizeof generation - 1);
	say("ready %s", generation);
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &v) == 1) {
			say("ret %ld", foo(v));
		} else if (!strcmp(line, "exec\n")) {
			again(NULL);
		} else {
			for (int i = 0; i < 3; i++)
				thread(spin, 0);
			while (!GET(called))
				sched_yield();
			pthread_join(thread(again, 0), NULL);
		}
	}
	return verdict();
}

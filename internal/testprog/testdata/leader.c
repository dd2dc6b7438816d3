// The main thread ends before the others: it is a zombie when the program says
// "ready". "call V" prints "ret R", called by one of the threads that live on.
#include "prog.h"

static pthread_t leader;

REAL long foo(long v) { return 17 * v + 1; }

static void *heir(void *unused)
{
	char line[64];
	long v;
	outlive(leader);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "call %ld", &v) == 1);
		say("ret %ld", foo(v));
	}
	exit(verdict());
}

static void *idle(void *unused)
{
	for (;;)
		pause();
	return NULL;
}

int main(void)
{
	leader = pthread_self();
	thread(idle, 0);
	thread(heir, 0);
	pthread_exit(NULL);
}

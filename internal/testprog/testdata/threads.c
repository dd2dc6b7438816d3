// N threads (argument 1, or 8) that stay. "go M": each calls foo M times, then
// "went CALLS". "start": they call until "stop", then "calls CALLS" of this run. "alone": the main thread does,
// while they wait.
#include "prog.h"
#include <poll.h>

static pthread_barrier_t gate;
static long limit, stopped, quit, calls;

REAL long foo(long v) { return 3 * v + 1; }

static void *worker(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&gate);
		if (GET(quit))
			return NULL;
		long n = 0;
		for (; n < GET(limit) && !GET(stopped); n++)
			CHECK(foo(n) == 3 * n + 1);
		ADD(calls, n);
		pthread_barrier_wait(&gate);
	}
}

int main(int argc, char **argv)
{
	static pthread_t t[8192];
	long n = argc > 1 ? atol(argv[1]) : 8;
	char line[64];
	pthread_barrier_init(&gate, NULL, n + 1);
	for (long i = 0; i < n; i++)
		t[i] = thread(worker, i);
	say("ready");
	while (hear(line, sizeof line)) {
		if (strncmp(line, "alone", 5) == 0) {
			struct pollfd order = { 0, POLLIN, 0 };
			for (calls = 0; poll(&order, 1, 0) == 0; calls++)
				CHECK(foo(calls) == 3 * calls + 1);
			hear(line, sizeof line); // stop
			say("calls %ld", calls);
			continue;
		}
		int go = sscanf(line, "go %ld", &limit);
		if (go != 1)
			limit = 1L << 62;
		calls = stopped = 0;
		pthread_barrier_wait(&gate);
		if (go != 1 && hear(line, sizeof line)) // stop
			SET(stopped, 1);
		pthread_barrier_wait(&gate);
		say("%s %ld", go == 1 ? "went" : "calls", calls);
	}
	SET(quit, 1);
	pthread_barrier_wait(&gate);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return verdict();
}

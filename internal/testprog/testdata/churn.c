// N threads (argument 1, or 4) that create threads which call foo and exit, all
// the time. "count" prints "count THREADS"; the end of input ends it.
#include "prog.h"

static long quit, made;

REAL long foo(long v) { return 7 * v + 1; }

static void *returns(void *arg) { return (void *)foo((long)arg); }
static void *exits(void *arg) { pthread_exit((void *)foo((long)arg)); }

static void *maker(void *arg)
{
	for (long n = 0; !GET(quit); n++) {
		void *result;
		pthread_t a = thread(returns, n), b = thread(exits, n);
		pthread_join(a, &result);
		CHECK((long)result == 7 * n + 1);
		pthread_join(b, &result);
		CHECK((long)result == 7 * n + 1);
		ADD(made, 2);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[256];
	long n = argc > 1 ? atol(argv[1]) : 4;
	char line[64];
	for (long i = 0; i < n; i++)
		t[i] = thread(maker, i);
	say("ready");
	while (hear(line, sizeof line))
		say("count %ld", GET(made));
	SET(quit, 1);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return verdict();
}

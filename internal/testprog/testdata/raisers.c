// Threads, 100 of them, that take signals without pause. The end of its input ends them.
#include "prog.h"

enum { N = 100 };
static long stopped, taken;

static void take(int sig) { (void)sig; ADD(taken, 1); }
static void *raises(void *arg)
{
	(void)arg;
	long n = 0;
	while (!GET(stopped))
		n += raise(SIGUSR1) == 0;
	return (void *)n;
}

int main(void)
{
	char line[64];
	pthread_t t[N];
	long raised = 0;
	signal(SIGUSR1, take);
	for (int i = 0; i < N; i++)
		t[i] = thread(raises, 0);
	say("ready");
	while (hear(line, sizeof line))
		;
	SET(stopped, 1);
	for (int i = 0; i < N; i++) {
		void *n;
		pthread_join(t[i], &n);
		raised += (long)n;
	}
	CHECK(raised == taken);
	return verdict();
}

// Handlers of signals that block all others, and a thread that does. "foo V" calls foo; then, as for any other line, it says "masks" and the
// mask of each handler.
#include <signal.h>
#include "prog.h"

static const int handled[] = { SIGHUP, SIGILL, SIGBUS, SIGUSR1, SIGSEGV, SIGALRM };

static void handler(int sig) { (void)sig; }

static pthread_barrier_t begun;

static void *deaf(void *arg)
{
	pthread_barrier_wait(&begun);
	for (;;)
		pause();
	return arg;
}

REAL long foo(long v) { return 3 * v + 1; }

int main(void)
{
	char line[64], out[256];
	struct sigaction sa = { .sa_handler = handler };
	sigfillset(&sa.sa_mask);
	for (unsigned i = 0; i < sizeof handled / sizeof *handled; i++)
		CHECK(sigaction(handled[i], &sa, NULL) == 0);
	sigset_t all, own;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &own) == 0);
	pthread_barrier_init(&begun, NULL, 2);
	thread(deaf, 0);
	pthread_barrier_wait(&begun);
	CHECK(pthread_sigmask(SIG_SETMASK, &own, NULL) == 0);
	say("ready");
	while (hear(line, sizeof line)) {
		long v;
		if (sscanf(line, "foo %ld", &v) == 1)
			CHECK(foo(v) == 3 * v + 1);
		int n = 0;
		for (unsigned i = 0; i < sizeof handled / sizeof *handled; i++) {
			struct sigaction now;
			CHECK(sigaction(handled[i], NULL, &now) == 0);
			n += snprintf(out + n, sizeof out - n, " %lx", *(unsigned long *)&now.sa_mask);
		}
		say("masks%s", out);
	}
	return verdict();
}

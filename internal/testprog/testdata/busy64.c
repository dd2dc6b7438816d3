// N threads (argument 1, or 64) that call hot functions, fork and get signals until
// the end of input, also an alarm every so many microseconds (argument 2, or 1000).
// "count" prints "count CALLS CHILDREN SIGNALS".
#include "prog.h"
#include <sys/time.h>

static long quit, calls, children, signals;

REAL long foo(long v) { return 19 * v + 1; }
REAL long bar(long v) { return foo(v) - 1; }
REAL double half(double x) { return x / 2; }
REAL long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static void on_signal(int sig) { ADD(signals, 1); CHECK(foo(sig) == 19 * sig + 1); }

static void make_child(long n)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(foo(n) == 19 * n + 1 ? 42 : 1);
	CHECK(pid > 0);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) {
			CHECK(!"waitpid");
			return;
		}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	ADD(children, 1);
}

static void *worker(void *arg)
{
	for (long n = (long)arg; !GET(quit); n++) {
		for (int i = 0; i < 20; i++)
			CHECK(bar(n + i) == 19 * (n + i));
		CHECK(half(n) == n / 2.0);
		CHECK(fib(5) == 5);
		ADD(calls, 20);
		if (n % 500 == 0)
			make_child(n);
		if (n % 50 == 0)
			pthread_kill(pthread_self(), SIGUSR1);
		usleep(500);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static pthread_t t[4096];
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	long n = argc > 1 ? atol(argv[1]) : 64, us = argc > 2 ? atol(argv[2]) : 1000;
	struct itimerval tick = { { us / 1000000, us % 1000000 }, { us / 1000000, us % 1000000 } };
	char line[64];
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	for (long i = 0; i < n; i++)
		t[i] = thread(worker, i);
	setitimer(ITIMER_REAL, &tick, NULL);
	say("ready");
	while (hear(line, sizeof line))
		say("count %ld %ld %ld", GET(calls), GET(children), GET(signals));
	SET(quit, 1);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return verdict();
}

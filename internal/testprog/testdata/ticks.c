// N threads (argument 1, or 2), to each of which a timer of its own sends SIGUSR1 2000 times a second. "go M": each
// calls foo M times, then "went CALLS signals SIGNALS", all of them, those of the handler included, which
// checks that it sees no address that is not the program's. A signal that a thread sends to itself now and then must come at once.
#include "prog.h"
#include <sys/syscall.h>
#include <ucontext.h>

static pthread_barrier_t gate;
static long limit, quit, calls, signals;
static __thread volatile long sent;
extern char __executable_start[], etext[];

REAL long foo(long v) { return 3 * v + 1; }

static void on_tick(int sig, siginfo_t *si, void *ctx)
{
	unsigned long rip = ((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
	CHECK(rip >= (unsigned long)__executable_start && rip < (unsigned long)etext || rip >> 40 == 0x7f || rip >> 40 == 0x7e);
	long n = ADD(signals, 1);
	CHECK(foo(n) == 3 * n + 1);
	ADD(calls, 1);
}

static void on_sent(int sig) { sent++; }

static timer_t ticking(void)
{
	timer_t t;
	struct sigevent to = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec each = { { 0, 500000 }, { 0, 500000 } };
	to._sigev_un._tid = syscall(SYS_gettid);
	CHECK(timer_create(CLOCK_MONOTONIC, &to, &t) == 0 && timer_settime(t, 0, &each, NULL) == 0);
	return t;
}

static void *worker(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&gate);
		if (GET(quit))
			return NULL;
		timer_t t = ticking();
		for (long i = 0; i < GET(limit); i++) {
			CHECK(foo(i) == 3 * i + 1);
			long was = sent;
			if (i % 100 == 0)
				CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0 && sent == was + 1);
		}
		CHECK(timer_delete(t) == 0);
		ADD(calls, GET(limit));
		pthread_barrier_wait(&gate);
	}
}

int main(int argc, char **argv)
{
	static pthread_t t[64];
	struct sigaction sa = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	long n = argc > 1 ? atol(argv[1]) : 2;
	char line[64];
	struct sigaction own = { .sa_handler = on_sent, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0 && sigaction(SIGUSR2, &own, NULL) == 0);
	pthread_barrier_init(&gate, NULL, n + 1);
	for (long i = 0; i < n; i++)
		t[i] = thread(worker, i);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "go %ld", &limit) == 1);
		calls = signals = 0;
		pthread_barrier_wait(&gate);
		pthread_barrier_wait(&gate);
		say("went %ld signals %ld", calls, signals);
	}
	SET(quit, 1);
	pthread_barrier_wait(&gate);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return verdict();
}

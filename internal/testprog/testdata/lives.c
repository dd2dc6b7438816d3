// What programs do that a dying tracer may break: threads, processes, signals of their own. The argument of
// "traps" is how SIGTRAP is handled; see the list of cases at the end.
#include "rounds.h"
#include <semaphore.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/signalfd.h>

extern char **environ;

REAL long app_work(long v)
{
	char text[64], *copy;
	long sum = 0;
	snprintf(text, sizeof text, "%ld %s", v, "words");
	copy = strdup(text);
	CHECK(copy && strcmp(copy, text) == 0);
	sum = strtol(copy, NULL, 10) * 3 + (long)strlen(copy) - (long)strlen(text);
	free(copy);
	return sum;
}
REAL long app_outer(long v) { return app_work(v) + 1; }

// Threads that are made and joined, some of them detached.

static sem_t gone;

static void *joined(void *arg) { return (void *)app_outer((long)arg); }
static void *exits(void *arg) { pthread_exit((void *)app_outer((long)arg)); }
static void *detached(void *arg)
{
	CHECK(app_outer((long)arg) == 3 * (long)arg + 1);
	sem_post(&gone);
	return NULL;
}

static long threads_round(long i)
{
	pthread_t t[3];
	long sum = 0;
	void *r;
	for (int k = 0; k < 3; k++)
		t[k] = thread(k % 2 ? exits : joined, i + k);
	pthread_detach(thread(detached, i));
	for (int k = 0; k < 3; k++) {
		CHECK(pthread_join(t[k], &r) == 0);
		CHECK((long)r == 3 * (i + k) + 1);
		sum += (long)r;
	}
	while (sem_wait(&gone) != 0)
		CHECK(errno == EINTR);
	return sum;
}

// Processes.

static long reaped(pid_t pid)
{
	int status;
	CHECK(pid > 0);
	while (waitpid(pid, &status, 0) != pid)
		CHECK(errno == EINTR);
	CHECK(WIFEXITED(status));
	if (!WIFEXITED(status))
		dprintf(2, "child %d ended by signal %d\n", pid, WTERMSIG(status));
	return WEXITSTATUS(status);
}

static long spawn_round(long i)
{
	char script[64], line[64] = "";
	snprintf(script, sizeof script, "exit %ld", i % 50);
	char *args[] = { "sh", "-c", script, NULL };
	pid_t pid = -1;
	posix_spawnattr_t attr;
	sigset_t none;
	sigemptyset(&none);
	CHECK(posix_spawnattr_init(&attr) == 0);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, i % 2 ? POSIX_SPAWN_SETSIGMASK : 0);
	CHECK(posix_spawn(&pid, "/bin/sh", NULL, &attr, args, environ) == 0);
	CHECK(posix_spawnattr_destroy(&attr) == 0);
	long sum = reaped(pid);
	CHECK(sum == i % 50);
	if (i % 2) {
		int status = system(script);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == i % 50);
		sum += WEXITSTATUS(status);
	} else {
		snprintf(script, sizeof script, "echo said %ld", i);
		FILE *f = popen(script, "r");
		CHECK(f && fgets(line, sizeof line, f));
		CHECK(f && pclose(f) == 0);
		CHECK(strtol(line + 5, NULL, 10) == i);
		sum += i;
	}
	return sum;
}

static void *works(void *arg)
{
	return (void *)app_outer((long)arg);
}

static long fork_round(long i)
{
	pid_t pid = fork();
	if (pid == 0) {
		void *r = NULL; // a child that has threads of its own
		pthread_join(thread(works, i), &r);
		exit((long)r == 3 * i + 1 && GET(wrong) == 0 ? 40 + i % 5 : 1);
	}
	long sum = reaped(pid);
	CHECK(sum == 40 + i % 5);
	pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "exit 9", NULL);
		_exit(1);
	}
	CHECK(reaped(pid) == 9);
	pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	CHECK(reaped(pid) == 0);
	return sum;
}

// SIGTRAP of the program's own.

static long trapped, sum_trapped;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	(void)context;
	CHECK(sig == SIGTRAP && info->si_signo == SIGTRAP);
	ADD(sum_trapped, app_work(7));
	ADD(trapped, 1);
}

static void ignore_or_handle(int flags)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | flags };
	if (flags & SA_ONSTACK) {
		stack_t st = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
		CHECK(sigaltstack(&st, NULL) == 0);
	}
	CHECK(sigaction(SIGTRAP, &sa, NULL) == 0);
}

static long traps_round(long i)
{
	long before = GET(trapped), sum = GET(sum_trapped);
	raise(SIGTRAP);
	CHECK(GET(trapped) == before + 1);
	__asm__ volatile("int3");
	CHECK(GET(trapped) == before + 2);
	CHECK(GET(sum_trapped) == sum + 42);
	void *r;
	CHECK(pthread_join(thread(joined, i), &r) == 0);
	CHECK((long)r == 3 * i + 1);
	return app_work(i);
}

static long ignored_round(long i)
{
	raise(SIGTRAP);
	CHECK(kill(getpid(), SIGTRAP) == 0);
	void *r;
	CHECK(pthread_join(thread(joined, i), &r) == 0);
	return app_work(i);
}

// An action that is set and blocked all the time.
static long sets_round(long i)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO }, old;
	sigset_t trap, own;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	long before = GET(trapped);
	CHECK(sigaction(SIGTRAP, &sa, &old) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &trap, &own) == 0);
	raise(SIGTRAP);
	app_work(i);
	CHECK(GET(trapped) == before);
	CHECK(pthread_sigmask(SIG_SETMASK, &own, NULL) == 0);
	CHECK(GET(trapped) == before + 1);
	CHECK(sigaction(SIGTRAP, &old, NULL) == 0);
	return app_work(i);
}

// Threads that block all signals: one that waits for them, one that reads them, one that works.

static long waited, read_signals, toiled;
static pthread_t waiter, reader, worker;
static int signals;
static sem_t taken;

static void *waits(void *arg)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	for (;;) {
		siginfo_t info;
		if (sigwaitinfo(&set, &info) != SIGUSR1)
			continue;
		CHECK(app_work(info.si_value.sival_int) == 3L * info.si_value.sival_int);
		ADD(waited, 1);
		sem_post(&taken);
	}
	return arg;
}

static void *reads(void *arg)
{
	for (;;) {
		struct signalfd_siginfo info;
		ssize_t n = read(signals, &info, sizeof info);
		if (n < 0 && errno == EINTR)
			continue;
		CHECK(n == sizeof info && info.ssi_signo == SIGUSR2);
		CHECK(app_work(info.ssi_int) == 3L * info.ssi_int);
		ADD(read_signals, 1);
		sem_post(&taken);
	}
	return arg;
}

static void *toils(void *arg)
{
	for (long i = 0;; i++) {
		CHECK(app_outer(i % 1000) == 3 * (i % 1000) + 1);
		ADD(toiled, 1);
		if (i % 16 == 0)
			sched_yield();
	}
	return arg;
}

static void deafen(void)
{
	sigset_t all, usr2;
	sigfillset(&all);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0); // the main thread too
	signals = signalfd(-1, &usr2, SFD_CLOEXEC);
	CHECK(signals >= 0);
	waiter = thread(waits, 0);
	reader = thread(reads, 0);
	worker = thread(toils, 0);
}

static long masked_round(long i)
{
	union sigval v = { .sival_int = (int)i };
	long w = GET(waited), r = GET(read_signals), before = GET(toiled);
	CHECK(pthread_sigqueue(waiter, SIGUSR1, v) == 0);
	CHECK(sigqueue(getpid(), SIGUSR2, v) == 0);
	for (int n = 0; n < 2;)
		n += sem_wait(&taken) == 0;
	CHECK(GET(waited) == w + 1 && GET(read_signals) == r + 1);
	while (GET(toiled) == before)
		sched_yield();
	void *res;
	CHECK(pthread_join(thread(joined, i), &res) == 0); // blocks all, by inheritance
	CHECK((long)res == 3 * i + 1);
	return app_work(i);
}

// Signals all the time, whose handlers block all others, and jumps out of them.

static sigjmp_buf back;
static long alarms;

static void on_alarm(int sig) { (void)sig; ADD(alarms, app_work(1) == 3); }
static void on_quit(int sig) { (void)sig; app_work(2); siglongjmp(back, 1); }

static void busy_signals(void)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	sigfillset(&sa.sa_mask);
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	sa.sa_handler = on_quit;
	CHECK(sigaction(SIGQUIT, &sa, NULL) == 0);
}

static long signals_round(long i)
{
	long before = GET(alarms);
	raise(SIGUSR1);
	CHECK(GET(alarms) == before + 1);
	if (sigsetjmp(back, 1) == 0) {
		raise(SIGQUIT);
		CHECK(0);
	}
	return app_work(i);
}

static const struct round cases[] = {
	{ "threads", threads_round },
	{ "spawn", spawn_round },
	{ "fork", fork_round },
	{ "traps", traps_round }, // an argument: nothing, nodefer, onstack
	{ "ignored", ignored_round },
	{ "sets", sets_round },
	{ "masked", masked_round },
	{ "signals", signals_round },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
	sem_init(&gone, 0, 0);
	sem_init(&taken, 0, 0);
	if (!strcmp(what, "traps"))
		ignore_or_handle(!strcmp(how, "nodefer") ? SA_NODEFER : !strcmp(how, "onstack") ? SA_ONSTACK : 0);
	if (!strcmp(what, "ignored"))
		signal(SIGTRAP, SIG_IGN);
	if (!strcmp(what, "masked"))
		deafen();
	if (!strcmp(what, "signals"))
		busy_signals();
	return serve(cases);
}

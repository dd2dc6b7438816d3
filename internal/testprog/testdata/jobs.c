// A shell and its job: a process with N threads (argument 1, or 4) that call foo for ever, of which "job PID" tells.
// "stop SIG": the shell stops it with SIG and has it go on: it sees one stop and one continuation, "stopped SIG".
// "pairs": it stops it and has it go on at once, over and over until "enough". Then all threads go on, "went PAIRS".
#include "prog.h"
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { most = 64 };

static struct shared {
	long calls[most]; // of each thread
	long continued;   // runs of SIGCONT's handler
	long wrong;
} *shared;

static long n;
static pid_t job;

REAL long foo(long v) { return 3 * v + 1; }
REAL long bar(long v) { return v - 3; }

static void on_cont(int sig) { ADD(shared->continued, sig == SIGCONT); }

static void *worker(void *arg)
{
	for (long i = 0;; i++) {
		if (foo(i) != 3 * i + 1 || bar(i) != i - 3)
			ADD(shared->wrong, 1);
		ADD(shared->calls[(long)arg], 1);
	}
	return NULL;
}

static void work(void)
{
	struct sigaction sa = {.sa_handler = on_cont, .sa_flags = SA_RESTART};
	setpgid(0, 0); // not an orphaned group: its terminal's stop signals stop it
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGCONT, &sa, NULL);
	for (long i = 1; i < n; i++)
		thread(worker, i);
	worker(0);
}

// on waits until every thread has made calls since now.
static void on(void)
{
	for (long i = 0; i < n; i++)
		for (long was = GET(shared->calls[i]); GET(shared->calls[i]) == was;)
			sched_yield();
}

static void stop(int sig)
{
	struct shared was;
	int status;
	long before = GET(shared->continued);

	CHECK(kill(job, sig) == 0);
	CHECK(waitpid(job, &status, WUNTRACED | WCONTINUED) == job && WIFSTOPPED(status) && WSTOPSIG(status) == sig);
	memcpy(&was, shared, sizeof was);
	for (int i = 0; i < 200; i++)
		sched_yield();
	CHECK(memcmp(&was, shared, sizeof was) == 0);
	CHECK(waitpid(job, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
	CHECK(kill(job, SIGCONT) == 0);
	CHECK(waitpid(job, &status, WUNTRACED | WCONTINUED) == job && WIFCONTINUED(status));
	on();
	while (GET(shared->continued) == before)
		sched_yield();
	CHECK(waitpid(job, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
	say("stopped %d", sig);
}

static void pairs(void)
{
	static const int sigs[] = {SIGSTOP, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
	struct pollfd in = {.events = POLLIN};
	char line[64];
	int status;
	long i = 0;

	for (; poll(&in, 1, 0) == 0; i++) {
		kill(job, sigs[i % 5]);
		for (volatile long spin = i % 7 * 100; spin > 0; spin--)
			;
		kill(job, SIGCONT);
		if (i % 64 == 0)
			on();
	}
	hear(line, sizeof line); // enough
	on();
	while (waitpid(job, &status, WNOHANG | WUNTRACED | WCONTINUED) == job)
		CHECK(WIFCONTINUED(status));
	say("went %ld", i);
}

int main(int argc, char **argv)
{
	char line[64];
	int sig;

	n = argc > 1 ? atol(argv[1]) : 4;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && n <= most);
	if ((job = fork()) == 0)
		work();
	on();
	say("ready");
	say("job %d", job);
	while (hear(line, sizeof line))
		if (sscanf(line, "stop %d", &sig) == 1)
			stop(sig);
		else
			pairs();
	kill(job, SIGKILL);
	waitpid(job, NULL, 0);
	CHECK(shared->wrong == 0);
	return verdict();
}

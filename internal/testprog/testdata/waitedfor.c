// Signals that are blocked, all their lives, and waited for. Argument 1 is what is blocked: "all", "most" (all but SIGINT and SIGTERM), "parts" (all, in two calls),
// "few" (SIGTRAP, SIGILL and SIGUSR1), "trap" (SIGTRAP alone). A second thread blocks the same and sleeps.
//
//	send N     sends signal N to the process: "sent"
//	raise N    to this thread: "sent"
//	fd N       reads it from a signalfd: "got N from S", the sender's PID, 0 for itself
//	wait N     waits for it by sigwaitinfo(2): "got N from S"
//	pending N  "pending 0|1"
//	moment W   blocks all signals for a moment, or has the C library do it, and puts its own mask back. W is "around", "spawn", "vfork", "fork" or
//	           "thread": "over"
//	unblock N  "unblocked"
//	blocked    the mask, in hexadecimal: "blocked M"
#include "prog.h"
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

REAL long foo(long v) { return 7 * v + 1; }

static void *sleeps(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

static void block(const char *what)
{
	sigset_t s, low;
	sigfillset(&s);
	sigemptyset(&low);
	if (!strcmp(what, "most")) {
		sigdelset(&s, SIGINT);
		sigdelset(&s, SIGTERM);
	} else if (!strcmp(what, "parts")) {
		for (int n = 1; n < 12; n++) {
			sigaddset(&low, n);
			sigdelset(&s, n);
		}
		CHECK(sigprocmask(SIG_BLOCK, &low, NULL) == 0);
	} else if (!strcmp(what, "few")) {
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
		sigaddset(&s, SIGILL);
		sigaddset(&s, SIGUSR1);
	} else if (!strcmp(what, "trap")) {
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
	}
	CHECK(sigprocmask(SIG_BLOCK, &s, NULL) == 0);
}

static void *ends(void *arg)
{
	CHECK(foo(3) == 22);
	return arg;
}

static void moment(const char *what)
{
	char *argv[] = { "true", NULL };
	sigset_t all, before;
	pthread_t t;
	pid_t child = 0;
	sigfillset(&all);
	if (!strcmp(what, "around") || !strcmp(what, "vfork"))
		CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
	if (!strcmp(what, "around")) {
		CHECK(foo(3) == 22);
	} else if (!strcmp(what, "vfork")) {
		child = vfork();
		if (child == 0) {
			foo(4);
			_exit(0);
		}
	} else if (!strcmp(what, "fork")) {
		child = fork();
		if (child == 0) {
			foo(4);
			_exit(0);
		}
	} else if (!strcmp(what, "spawn")) {
		CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, argv, argv + 1) == 0);
	} else if (!strcmp(what, "thread")) {
		CHECK(pthread_create(&t, NULL, ends, NULL) == 0);
		CHECK(pthread_join(t, NULL) == 0);
	} else {
		CHECK(!"known moment");
	}
	if (!strcmp(what, "around") || !strcmp(what, "vfork"))
		CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	if (child)
		CHECK(waitpid(child, NULL, 0) == child);
}

int main(int argc, char **argv)
{
	char line[64], what[16];
	int n;
	CHECK(argc == 2);
	block(argv[1]);
	thread(sleeps, NULL);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(foo(3) == 22);
		sigset_t one;
		sigemptyset(&one);
		if (sscanf(line, "send %d", &n) == 1) {
			CHECK(kill(getpid(), n) == 0);
			say("sent");
		} else if (sscanf(line, "raise %d", &n) == 1) {
			CHECK(raise(n) == 0);
			say("sent");
		} else if (sscanf(line, "fd %d", &n) == 1) {
			struct signalfd_siginfo si;
			sigaddset(&one, n);
			int fd = signalfd(-1, &one, 0); // where we are dead, another thread may take the signal first, and send it again
			struct pollfd p = { fd, POLLIN, 0 };
			CHECK(poll(&p, 1, -1) == 1);
			CHECK(read(fd, &si, sizeof si) == sizeof si);
			say("got %d from %d", si.ssi_signo, (int)si.ssi_pid == getpid() ? 0 : (int)si.ssi_pid);
			close(fd);
		} else if (sscanf(line, "wait %d", &n) == 1) {
			siginfo_t si;
			sigaddset(&one, n);
			CHECK(sigwaitinfo(&one, &si) == n);
			say("got %d from %d", n, si.si_pid == getpid() ? 0 : (int)si.si_pid);
		} else if (sscanf(line, "pending %d", &n) == 1) {
			sigpending(&one);
			say("pending %d", sigismember(&one, n));
		} else if (sscanf(line, "moment %15s", what) == 1) {
			moment(what);
			say("over");
		} else if (sscanf(line, "unblock %d", &n) == 1) {
			sigaddset(&one, n);
			CHECK(sigprocmask(SIG_UNBLOCK, &one, NULL) == 0);
			say("unblocked");
		} else if (!strcmp(line, "blocked\n")) {
			unsigned long m = 0;
			sigprocmask(SIG_BLOCK, NULL, &one);
			memcpy(&m, &one, sizeof m);
			say("blocked %lx", m);
		} else {
			CHECK(!"known command");
		}
	}
	return verdict();
}

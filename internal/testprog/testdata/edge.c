// More corner cases, a command each. Answers start with "did", those of commands that go on
// meanwhile with "going".
//
// Argument 1 may be "relative": a child that shares the memory but is no thread calls foo
// until the command "relative"; "namespace PROG ARG...": PROG is run in a PID namespace
// of its own, if we may make one.
#include "prog.h"
#include <dlfcn.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static long queued, relative_calls, stop_relative;

REAL long foo(long v)
{
	asm volatile("nopw 0x0(%rax,%rax,1)");
	return 5 * v + 1;
}

// The ret is 1 byte in.
asm(".text\n.globl bad_return\n.type bad_return,@function\nbad_return:\n\tnop\nto_bad_stack:\n"
    "\tret\n.size bad_return,.-bad_return\n");

static void on_queued(int sig, siginfo_t *si, void *uc)
{
	CHECK(si->si_code == SI_QUEUE && si->si_value.sival_int == queued);
	ADD(queued, 1);
}

static void catch(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = SA_SIGINFO | SA_RESTART };
	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static int relative(void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!GET(stop_relative)) {
		CHECK(foo(3) == 16);
		ADD(relative_calls, 1);
	}
	return 7;
}

static pid_t make_relative(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	return clone(relative, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
}

static int namespace(char **argv)
{
	int status;
	(void)!unshare(CLONE_NEWPID);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[0], argv);
		_exit(97);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

// receive has a child queue n signals with values, and calls foo until all came.
static void receive(long n)
{
	pid_t parent = getpid(), pid;
	catch(SIGRTMIN, on_queued);
	if ((pid = fork()) == 0) {
		for (long i = 0; i < n; i++)
			while (sigqueue(parent, SIGRTMIN, (union sigval){ .sival_int = i }) != 0)
				sched_yield();
		_exit(0);
	}
	for (long i = 0; GET(queued) < n; i++)
		CHECK(foo(i) == 5 * i + 1);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

// wait_for_input says what epoll_wait returned for a line of input.
static void wait_for_input(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, 0, &e) == 0);
	say("going");
	long r = epoll_wait(ep, &e, 1, -1);
	say("did %ld errno %d", r, r < 0 ? errno : 0);
	close(ep);
}

// take_pid makes a child of that PID that blocks SIGTERM.
static pid_t take_pid(long want)
{
	pid_t pid = want;
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (unsigned long)&pid, .set_tid_size = 1 };
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	long child = syscall(SYS_clone3, &args, sizeof args);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	return child;
}

static void fault_without_a_stack(void)
{
	say("going");
	asm volatile("mov $8,%%rsp\n\tjmp to_bad_stack" ::: "memory");
}

int main(int argc, char **argv)
{
	pid_t child = 0;
	void *library = NULL;
	char line[512], path[512];
	long n;
	if (argc > 2 && !strcmp(argv[1], "namespace"))
		return namespace(argv + 2);
	if (argc > 1 && !strcmp(argv[1], "relative"))
		child = make_relative();
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "foo %ld", &n) == 1) {
			for (long i = 0; i < n; i++)
				CHECK(foo(i) == 5 * i + 1);
			say("did %ld", n);
		} else if (sscanf(line, "receive %ld", &n) == 1) {
			receive(n);
			say("did %ld", queued);
		} else if (sscanf(line, "ignore %ld", &n) == 1) {
			CHECK(signal(n, SIG_IGN) != SIG_ERR);
			say("did");
		} else if (!strcmp(line, "epoll\n")) {
			wait_for_input();
			hear(line, sizeof line);
		} else if (!strcmp(line, "relative\n")) {
			long calls = GET(relative_calls);
			siginfo_t end = { 0 };
			while (GET(relative_calls) < calls + 1001 && end.si_pid == 0)
				CHECK(waitid(P_PID, child, &end, WEXITED | WNOHANG | WNOWAIT) == 0);
			SET(stop_relative, 1);
			int status = 0;
			CHECK(waitpid(child, &status, 0) == child);
			say("did status %d signal %d", WEXITSTATUS(status), WTERMSIG(status));
		} else if (sscanf(line, "take %ld", &n) == 1) {
			say("did %d", take_pid(n));
		} else if (sscanf(line, "load %511s", path) == 1) {
			CHECK((library = dlopen(path, RTLD_NOW)) != NULL);
			say("did %d", library == NULL);
		} else if (!strcmp(line, "unload\n")) {
			say("did %d", dlclose(library));
		} else if (!strcmp(line, "ignored\n")) {
			signal(SIGSEGV, SIG_IGN);
			fault_without_a_stack();
		} else if (!strcmp(line, "blocked\n")) {
			sigset_t set;
			sigfillset(&set);
			sigprocmask(SIG_BLOCK, &set, NULL);
			fault_without_a_stack();
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

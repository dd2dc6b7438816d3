// "run N": N children each by fork, vfork, posix_spawn and clone(CLONE_VM), every
// one of which calls foo; then "ran CHILDREN". All their exit statuses are checked.
#include "prog.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;
static long shared;

REAL long foo(long v) { return (v * 11 + 1) % 100; }

static int shares(void *arg)
{
	shared = foo((long)arg);
	return shared;
}

static void reap(pid_t pid, long i)
{
	int status;
	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, __WALL) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (i * 11 + 1) % 100);
}

static pid_t forks(long i)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(foo(i));
	return pid;
}

static pid_t vforks(long i)
{
	pid_t pid = vfork();
	if (pid == 0)
		_exit(foo(i));
	return pid;
}

static pid_t spawns(long i)
{
	char number[32];
	char *args[] = { "forker", number, NULL };
	pid_t pid;
	sprintf(number, "%ld", i);
	CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) == 0);
	return pid;
}

int main(int argc, char **argv)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	char line[64];
	long n;
	if (argc > 1)
		return foo(atol(argv[1]));
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "run %ld", &n) == 1);
		for (long i = 0; i < n; i++) {
			reap(forks(i), i);
			reap(vforks(i), i);
			reap(spawns(i), i);
			shared = -1;
			reap(clone(shares, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)i), i);
			CHECK(shared == (i * 11 + 1) % 100);
		}
		say("ran %ld", 4 * n);
	}
	return verdict();
}

// Processes that share memory with this one, or have a copy of it. "vfork": a child that says "child", and ends with the next line; then "back N".
// "spawn N": N children by vfork; then "spawned N". "orphan": a process whose parent has ended, which calls foo until this process ends; "orphan PID".
// "ignore": SIGTRAP from here on; then "ignores". "trap": a SIGTRAP behind a call of foo with that signal blocked; then "ignored", or "not ignored".
#include "prog.h"
#include <poll.h>

REAL long foo(long v) { return (v * 11 + 1) % 100; }

static int life[2]; // nobody writes there; it ends with us

static void reap(pid_t pid, long want)
{
	int status;
	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == want);
}

static void calls(void)
{
	struct pollfd end = { .fd = life[0], .events = POLLIN };
	close(life[1]);
	for (long i = 0; poll(&end, 1, 0) == 0; i++)
		if (foo(i % 50) != (i % 50 * 11 + 1) % 100)
			abort();
	_exit(0);
}

static pid_t orphan(void)
{
	int told[2];
	pid_t pid = -1;
	CHECK(pipe(told) == 0);
	pid_t parent = fork();
	if (parent == 0) {
		if (fork() == 0) {
			pid = getpid();
			if (write(told[1], &pid, sizeof pid) != sizeof pid)
				abort();
			calls();
		}
		_exit(7);
	}
	reap(parent, 7);
	CHECK(read(told[0], &pid, sizeof pid) == sizeof pid);
	close(told[0]);
	close(told[1]);
	return pid;
}

int main(void)
{
	char line[64];
	long n;
	CHECK(pipe(life) == 0);
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "vfork\n")) {
			pid_t pid = vfork();
			if (pid == 0) {
				say("child");
				_exit(hear(line, sizeof line) ? foo(4) : 1);
			}
			reap(pid, 45);
			say("back %ld", foo(5));
		} else if (sscanf(line, "spawn %ld", &n) == 1) {
			for (long i = 0; i < n; i++) {
				pid_t pid = vfork();
				if (pid == 0)
					_exit(foo(i % 50));
				reap(pid, (i % 50 * 11 + 1) % 100);
			}
			say("spawned %ld", n);
		} else if (!strcmp(line, "orphan\n")) {
			say("orphan %d", orphan());
		} else if (!strcmp(line, "ignore\n")) {
			signal(SIGTRAP, SIG_IGN);
			say("ignores");
		} else if (!strcmp(line, "trap\n")) {
			sigset_t trap;
			sigemptyset(&trap);
			sigaddset(&trap, SIGTRAP);
			CHECK(sigprocmask(SIG_BLOCK, &trap, NULL) == 0);
			CHECK(foo(5) == 56);
			CHECK(sigprocmask(SIG_UNBLOCK, &trap, NULL) == 0);
			CHECK(raise(SIGTRAP) == 0);
			struct sigaction now;
			CHECK(sigaction(SIGTRAP, NULL, &now) == 0);
			say(now.sa_handler == SIG_IGN ? "ignored" : "not ignored");
		} else {
			CHECK(0);
		}
	}
	return verdict();
}

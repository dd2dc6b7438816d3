// A process whose number is given to another one, at once, when it has ended. "child" says the number of a child, which waits; "swap" ends that
// one, and makes another of the same number, which waits too; "end" ends the child. Making it needs a capability (clone3(2), set_tid).
#include "prog.h"
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static long born(pid_t number)
{
	pid_t set[1] = {number};
	struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = number ? (unsigned long)set : 0, .set_tid_size = number ? 1 : 0};
	long pid = syscall(SYS_clone3, &a, sizeof a);
	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void buried(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

int main(void)
{
	char line[64];
	pid_t child = 0;
	say("ready");
	while (hear(line, sizeof line)) {
		if (strcmp(line, "child\n") == 0) {
			child = born(0);
			say("child %d", child);
		} else if (strcmp(line, "swap\n") == 0) {
			buried(child);
			long pid = born(child);
			if (pid != child)
				say("swapped %ld %d", pid, errno);
			else
				say("swapped %ld", pid);
		} else if (strcmp(line, "end\n") == 0) {
			buried(child);
			say("ended");
		}
	}
	return verdict();
}

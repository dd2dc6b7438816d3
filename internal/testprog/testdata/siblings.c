// "fork": a child, "forked PID". "swap": the child ends while another one is made.
// "grow": the child makes one. "reap": waits for all children, orphans included, and
// prints "reaped N".
#include "prog.h"
#include <sys/prctl.h>

static int leash[2];

static pid_t child(void)
{
	char c;
	pid_t pid = fork();
	if (pid == 0) {
		close(leash[1]);
		while (read(leash[0], &c, 1) == 1)
			if (fork() == 0)
				_exit(0);
		_exit(0);
	}
	return pid;
}

int main(void)
{
	char line[64];
	int n;

	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	CHECK(pipe(leash) == 0);
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "fork\n")) {
			say("forked %d", child());
		} else if (!strcmp(line, "grow\n")) {
			CHECK(write(leash[1], "", 1) == 1);
		} else if (!strcmp(line, "swap\n")) {
			close(leash[1]);
			if (fork() == 0)
				_exit(0);
		} else {
			for (n = 0; wait(NULL) > 0; n++)
				;
			say("reaped %d", n);
		}
	}
	return verdict();
}

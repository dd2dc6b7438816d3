// Threads that change their names. "call" has a thread call foo(1). "rename" has it take another name,
// call foo(2) and end. "exec" forks a child that calls foo(3) and executes this program under another
// name, which calls foo(4). "vfork" is that by vfork(2), and foo(5).
#include "prog.h"
#include <sys/wait.h>

static int orders[2], answers[2];

REAL long foo(long v) { return 7 * v + 1; }

static void call(long v) { CHECK(foo(v) == 7 * v + 1); }

static void *worker(void *arg)
{
	char c;
	while (read(orders[0], &c, 1) == 1 && c == 'c') {
		call(1);
		CHECK(write(answers[1], "d", 1) == 1);
	}
	pthread_setname_np(pthread_self(), "renamed");
	call(2);
	return NULL;
}

int main(int argc, char **argv)
{
	char line[64], c;
	if (argc > 2) {
		call(4);
		return wrong != 0;
	}
	CHECK(pipe(orders) == 0 && pipe(answers) == 0);
	pthread_t t = thread(worker, 0);
	say("ready");
	while (hear(line, sizeof line)) {
		if (strncmp(line, "call", 4) == 0) {
			CHECK(write(orders[1], "c", 1) == 1 && read(answers[0], &c, 1) == 1);
		} else if (strncmp(line, "rename", 6) == 0) {
			CHECK(write(orders[1], "r", 1) == 1);
			pthread_join(t, NULL);
		} else {
			int status, shares = strncmp(line, "vfork", 5) == 0;
			pid_t pid = shares ? vfork() : fork();
			if (pid == 0) {
				call(shares ? 5 : 3);
				execl(argv[1], "other", "-", "-", NULL);
				_exit(9);
			}
			CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		}
		say("did it");
	}
	return verdict();
}

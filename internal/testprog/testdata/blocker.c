// Blocks signals in the ways of libraries and says what it is told. "set HEX" and "block HEX" change the mask and say the mask that the kernel tells
// then; "pass HEX" sets it, and says the mask and what is in the set that was passed; "open" blocks nothing; "foo V" calls foo; "action" sets SIGTRAP's action to the default and says the one before, "spawn" runs true
// by posix_spawn, "threads N" makes and joins N threads.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include "prog.h"

extern char **environ;

REAL long foo(long v) { return 3 * v + 1; }

static void *run(void *arg)
{
	CHECK(foo((long)arg) == 3 * (long)arg + 1);
	return arg;
}

// change returns what is in the set that was passed then.
static unsigned long change(int how, unsigned long bits, unsigned long *blocks)
{
	sigset_t set, now;
	sigemptyset(&set);
	*(unsigned long *)&set = bits;
	CHECK(pthread_sigmask(how, &set, NULL) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	*blocks = *(unsigned long *)&now;
	return *(unsigned long *)&set;
}

int main(void)
{
	char line[64];
	unsigned long v, now;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "set %lx", &v) == 1) {
			CHECK(change(SIG_SETMASK, v, &now) == v);
			say("blocked %lx", now);
		} else if (sscanf(line, "pass %lx", &v) == 1) {
			v = change(SIG_SETMASK, v, &now);
			say("passed %lx %lx", now, v);
		} else if (sscanf(line, "block %lx", &v) == 1) {
			CHECK(change(SIG_BLOCK, v, &now) == v);
			say("blocked %lx", now);
		} else if (sscanf(line, "foo %lu", &v) == 1) {
			CHECK(foo(v) == 3 * (long)v + 1);
			say("called");
		} else if (sscanf(line, "threads %lu", &v) == 1) {
			for (unsigned long i = 0; i < v; i++) {
				void *ret;
				pthread_t t;
				CHECK(pthread_create(&t, NULL, run, (void *)i) == 0);
				CHECK(pthread_join(t, &ret) == 0 && ret == (void *)i);
			}
			say("joined");
		} else if (strncmp(line, "action", 6) == 0) {
			struct sigaction dfl = { .sa_handler = SIG_DFL }, old;
			CHECK(sigaction(SIGTRAP, &dfl, &old) == 0);
			say("action %s", old.sa_handler == SIG_DFL ? "default" : "other");
		} else if (strncmp(line, "spawn", 5) == 0) {
			pid_t pid;
			int status;
			CHECK(posix_spawnp(&pid, "true", NULL, NULL, (char *[]){ "true", NULL }, environ) == 0);
			CHECK(waitpid(pid, &status, 0) == pid);
			say("status %x", status);
		}
	}
	return verdict();
}

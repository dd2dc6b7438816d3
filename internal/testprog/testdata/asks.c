// Threads that change SIGTRAP's action, and block signals by ever new sets, without pause: what their calls ask a tracer about. So do children that share
// the memory, between vfork and exec. "quit" ends them all.
#include "prog.h"

static long over;

REAL long foo(long v) { return 3 * v + 1; }

static void act(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL }, old;
	CHECK(sigaction(SIGTRAP, &dfl, NULL) == 0);
	CHECK(sigaction(SIGTRAP, NULL, &old) == 0);
}

// block blocks SIGTRAP and others, and no signal again.
static void block(unsigned long seed)
{
	sigset_t set, none;
	sigemptyset(&none);
	sigfillset(&set);
	for (int i = 0; i < 6; i++)
		sigdelset(&set, SIGRTMIN + (seed >> 4 * i) % 25);
	CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, &none, NULL) == 0);
}

static void *change(void *arg)
{
	unsigned long seed = (unsigned long)arg;
	while (!GET(over)) {
		if ((long)arg & 1)
			act();
		else
			block(seed = seed * 6364136223846793005UL + 1442695040888963407UL);
		CHECK(foo(seed & 0xff) == 3 * (long)(seed & 0xff) + 1);
	}
	return NULL;
}

// spawn has children do it, as shells and interpreters do before they execute something.
static void *spawn(void *arg)
{
	char *none[] = { NULL };
	while (!GET(over)) {
		int status;
		pid_t pid = vfork();
		if (pid == 0) {
			for (int i = 0; i < 20; i++)
				act();
			execve("/bin/true", none, none);
			_exit(97);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
	return arg;
}

int main(void)
{
	char line[64];
	pthread_t threads[5];
	for (int i = 0; i < 4; i++)
		threads[i] = thread(change, i);
	threads[4] = thread(spawn, 0);
	say("ready");
	while (hear(line, sizeof line) && strncmp(line, "quit", 4))
		;
	SET(over, 1);
	for (int i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	return verdict();
}

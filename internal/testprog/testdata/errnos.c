// Where errno lies. Commands: "go" calls fails in the main thread, "thread" in another one, "vfork" in a child
// that shares the memory: each prints "R errno E others O", O being how many other threads see an errno that they
// have not set. "library" calls getppid of the C library instead.
#include "prog.h"

static pthread_barrier_t gate;
static long others;

REAL long fails(long v) { return v / 3; }

// Three threads that look at their own errno while another one's is set.
static void *onlooker(void *v)
{
	(void)v;
	errno = 0;
	for (int i = 0; i < 2; i++)
		pthread_barrier_wait(&gate);
	ADD(others, errno != 0);
	return NULL;
}

static void watched(long (*f)(long))
{
	pthread_t t[3];
	others = 0;
	pthread_barrier_init(&gate, NULL, 4);
	for (int i = 0; i < 3; i++)
		t[i] = thread(onlooker, 0);
	pthread_barrier_wait(&gate);
	errno = 0;
	long r = f(30);
	int e = errno;
	pthread_barrier_wait(&gate);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&gate);
	say("%ld errno %d others %ld", r, e, others);
}

static void *in_thread(void *v) { watched((long (*)(long))v); return NULL; }

static long in_vfork(long v)
{
	static volatile long r;
	static volatile int e;
	errno = 0;
	pid_t pid = vfork();
	if (pid == 0) {
		r = fails(v);
		e = errno;
		_exit(0);
	}
	CHECK(waitpid(pid, NULL, 0) == pid);
	errno = e;
	return r;
}

static long in_library(long v) { (void)v; return getppid(); }

int main(void)
{
	char line[64];
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "go\n"))
			watched(fails);
		else if (!strcmp(line, "thread\n"))
			pthread_join(thread(in_thread, (long)fails), NULL);
		else if (!strcmp(line, "vfork\n"))
			watched(in_vfork);
		else if (!strcmp(line, "library\n"))
			watched(in_library);
		else
			CHECK(!"a known command");
	}
	return verdict();
}

// Calls whose frames are on several stacks, or share one. Commands, one answer line each:
//   plain      calls top: "plain N"
//   backtrace  the same, and leaf raises a signal whose handler, on an alternate stack, takes a backtrace: "backtrace FRAMES N"
//   throw      the same, and leaf throws through a frame of which a page is locked, so that the stack is several mappings: "throw N"
//   tail       a thread calls first, which jumps to last, and waits there: "tail"; "let" lets it go: "let N"
#include "prog.h"
#include <execinfo.h>
#include <semaphore.h>
#include <sys/mman.h>

static sem_t there, go;
static enum { PLAIN, SIGNAL, THROW } way;
static volatile int seen;

extern "C" {
REAL long last(long n)
{
	sem_post(&there);
	while (sem_wait(&go))
		;
	return n + 1;
}
REAL long first(long n) { return last(n + 1); }

REAL long leaf(long n)
{
	if (way == SIGNAL)
		raise(SIGUSR1);
	if (way == THROW)
		throw n;
	return n + 1;
}

REAL long split(long n)
{
	char room[65536];
	long r = 0;
	memset(room, 1, sizeof room);
	if (way == THROW && mlock((char *)(((long)room + 4095) & ~4095L) + 16384, 4096))
		perror("mlock");
	try {
		r = leaf(n) + room[5];
	} catch (int) {
	}
	return r + 1;
}

REAL long top(long n)
{
	try {
		return split(n) + 1;
	} catch (long v) {
		return v + 1000;
	}
}
}

static void look(int)
{
	void *frames[64];
	seen = backtrace(frames, 64);
}

static void *thread(void *) { return (void *)(first(1) + 5); }

int main(void)
{
	char line[64];
	void *result, *frames[4];
	pthread_t t;
	stack_t other = {};
	struct sigaction action = {};
	backtrace(frames, 4); // loads what it needs
	sem_init(&there, 0, 0);
	sem_init(&go, 0, 0);
	other.ss_size = 65536;
	other.ss_sp = mmap(NULL, other.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&other, NULL);
	action.sa_handler = look;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	say("ready");
	while (hear(line, sizeof line)) {
		way = !strncmp(line, "backtrace", 9) ? SIGNAL : !strncmp(line, "throw", 5) ? THROW : PLAIN;
		if (!strncmp(line, "tail", 4)) {
			pthread_create(&t, NULL, thread, NULL);
			while (sem_wait(&there))
				;
			say("tail");
		} else if (!strncmp(line, "let", 3)) {
			sem_post(&go);
			pthread_join(t, &result);
			say("let %ld", (long)result);
		} else {
			long n = top(1);
			if (way == SIGNAL)
				say("backtrace %d %ld", seen, n);
			else
				say("%s %ld", way == THROW ? "throw" : "plain", n);
		}
	}
	return verdict();
}

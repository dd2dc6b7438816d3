// Calls whose frames are on several stacks, or share one. Commands, one answer line each:
//   plain      calls top: "plain N"
//   backtrace  the same, and leaf raises a signal whose handler, on an alternate stack, takes a backtrace: "backtrace FRAMES N"
//   throw      the same, and leaf throws through a frame of which a page is locked, so that the stack is several mappings: "throw N"
//   storm N    four threads, whose stacks lie side by side in one mapping, call and throw N times each: "storm SUM"
//   tail       a thread calls first, which jumps to last, and waits there: "tail"; "let" lets it go: "let N"
//   open FILE  loads a library: "open"
#include "prog.h"
#include <dlfcn.h>
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

// Calls that throw, and calls that return, in frames of many sizes.
extern "C" {
REAL long storm_leaf(long n)
{
	if (n % 4 == 0)
		throw n;
	return n + 1;
}

REAL long storm_mid(long n)
{
	volatile char room[8 + 16 * (n % 7)];
	room[0] = n % 100;
	return storm_leaf(n) + room[0] - n % 100;
}
}

static void *storm(void *n)
{
	long sum = 0;
	for (long k = 0; k < (long)n; k++)
		try {
			sum += storm_mid(k) == k + 1;
		} catch (long v) {
			sum += v == k;
		}
	return (void *)sum;
}

static long storms(long n)
{
	enum { SIZE = 256 << 10, THREADS = 4 };
	static char *stacks;
	pthread_t t[THREADS];
	long sum = 0;
	if (!stacks)
		stacks = (char *)mmap(NULL, THREADS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int k = 0; k < THREADS; k++) {
		pthread_attr_t a;
		pthread_attr_init(&a);
		CHECK(!pthread_attr_setstack(&a, stacks + k * SIZE, SIZE) && !pthread_create(&t[k], &a, storm, (void *)n));
		pthread_attr_destroy(&a);
	}
	for (int k = 0; k < THREADS; k++) {
		void *one;
		CHECK(!pthread_join(t[k], &one));
		sum += (long)one;
	}
	return sum;
}

static void look(int)
{
	void *frames[64];
	seen = backtrace(frames, 64);
}

static void *thread(void *) { return (void *)(first(1) + 5); }

int main(void)
{
	char line[4096];
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
		} else if (!strncmp(line, "open", 4)) {
			CHECK(dlopen(strtok(line + 5, "\n"), RTLD_NOW));
			say("open");
		} else if (!strncmp(line, "storm", 5)) {
			say("storm %ld", storms(atol(line + 6)));
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

// What is measured. Commands on standard input, one answer line each:
//   threads N    N more threads that sleep in a futex; "ok"
//   beat         starts a thread that reads the clock all the time; "ok"
//   gap          "ns G", the longest time between two readings since the last "gap"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long calls;
static volatile long longest;

__attribute__((noinline, noipa)) long foo(long v) { return calls += v; }

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *sleeper(void *unused) { for (;;) pause(); }

static void *beat(void *unused)
{
	for (long last = now();;) {
		long t = now();
		if (t - last > longest)
			longest = t - last;
		last = t;
	}
}

static void spawn(void *(*f)(void *))
{
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	if (pthread_create(&t, &a, f, NULL))
		exit(1);
}

int main(void)
{
	char line[64], what[16];
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready %d\n", getpid());
	while (fgets(line, sizeof line, stdin)) {
		long n = 0;
		sscanf(line, "%15s %ld", what, &n);
		if (!strcmp(what, "threads")) {
			for (long i = 0; i < n; i++)
				spawn(sleeper);
			puts("ok");
		} else if (!strcmp(what, "beat")) {
			spawn(beat);
			puts("ok");
		} else if (!strcmp(what, "gap")) {
			printf("ns %ld\n", longest);
			longest = 0;
		}
	}
	return 0;
}

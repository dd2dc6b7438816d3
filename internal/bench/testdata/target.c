// What is measured. Commands on standard input, one answer line each:
//   pin CPU      keeps the calling thread on a processor
//   hot N        calls foo N times; "ns T"
//   trap N       executes a breakpoint instruction N times (a tracer must swallow them); "ns T"
//   threads N    N more threads that sleep in a futex; "ok"
//   beat         starts a thread that reads the clock all the time; "ok"
//   gap          "ns G", the longest time between two readings since the last "gap"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
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
		long n = 0, start = now();
		sscanf(line, "%15s %ld", what, &n);
		if (!strcmp(what, "pin")) {
			cpu_set_t set;
			CPU_ZERO(&set);
			CPU_SET(n, &set);
			puts(sched_setaffinity(0, sizeof set, &set) ? "error" : "ok");
		} else if (!strcmp(what, "hot")) {
			for (long i = 0; i < n; i++)
				foo(i);
			printf("ns %ld\n", now() - start);
		} else if (!strcmp(what, "trap")) {
			for (long i = 0; i < n; i++)
				asm volatile("int3");
			printf("ns %ld\n", now() - start);
		} else if (!strcmp(what, "threads")) {
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

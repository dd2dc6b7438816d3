// A program of 10,000 functions that makes others, or reads the clock. Commands on standard input, one answer line each, "ns T" for one of N:
//   fork N      forks N children that end at once, and waits for each
//   thread N    starts N threads that end at once, and waits for each
//   exec N      as fork, but the children execute this program, which ends at once
//   beat        starts a thread that reads the clock all the time; "ok"
//   gap         "ns G", the longest time between two readings since the last "gap"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

volatile long sum;

#define F(n) __attribute__((noinline)) void fn_##n(void) { sum += 1##n; }
#define F1(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#define F2(n) F1(n##0) F1(n##1) F1(n##2) F1(n##3) F1(n##4) F1(n##5) F1(n##6) F1(n##7) F1(n##8) F1(n##9)
#define F3(n) F2(n##0) F2(n##1) F2(n##2) F2(n##3) F2(n##4) F2(n##5) F2(n##6) F2(n##7) F2(n##8) F2(n##9)
F3(0) F3(1) F3(2) F3(3) F3(4) F3(5) F3(6) F3(7) F3(8) F3(9)

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *nothing(void *unused) { return NULL; }

static volatile long longest;

static void *beat(void *unused)
{
	for (long last = now();;) {
		long t = now();
		if (t - last > longest)
			longest = t - last;
		last = t;
	}
}

static void child(char **execute)
{
	pid_t pid = fork();
	if (pid == 0) {
		if (execute)
			execv("/proc/self/exe", execute);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void thread(void)
{
	pthread_t t;
	if (pthread_create(&t, NULL, nothing, NULL))
		exit(1);
	pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	char line[64], what[16], *again[] = { argv[0], "end", NULL };
	if (argc > 1)
		return 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready %d\n", getpid());
	while (fgets(line, sizeof line, stdin)) {
		long n = 1;
		sscanf(line, "%15s %ld", what, &n);
		if (!strcmp(what, "beat")) {
			pthread_t t;
			if (pthread_create(&t, NULL, beat, NULL))
				exit(1);
			puts("ok");
			continue;
		}
		if (!strcmp(what, "gap")) {
			printf("ns %ld\n", longest);
			longest = 0;
			continue;
		}
		long start = now();
		for (long i = 0; i < n; i++) {
			if (!strcmp(what, "thread"))
				thread();
			else
				child(strcmp(what, "exec") ? NULL : again);
		}
		printf("ns %ld\n", (now() - start) / n);
	}
	return 0;
}

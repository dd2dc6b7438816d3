// What all fixtures share: one-line output, checked results, a verdict.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A function that stays one: called for real, with all its arguments, no clones.
#define REAL __attribute__((noinline, noipa))

static long wrong; // results that were not as they must be

#define ADD(var, n) __atomic_add_fetch(&(var), (n), __ATOMIC_SEQ_CST)
#define GET(var) __atomic_load_n(&(var), __ATOMIC_SEQ_CST)
#define SET(var, n) __atomic_store_n(&(var), (n), __ATOMIC_SEQ_CST)
#define CHECK(cond) \
	do { \
		if (!(cond) && ADD(wrong, 1) <= 10) \
			dprintf(2, "%s:%d: wrong: %s (errno %d)\n", __FILE__, __LINE__, #cond, errno); \
	} while (0)

// say prints one line in one write.
__attribute__((format(printf, 1, 2), unused)) static void say(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	if (write(1, line, n) != n)
		_exit(99);
}

// hear reads one command; 0 at the end of input.
__attribute__((unused)) static int hear(char *line, int size)
{
	int n = 0;
	while (n < size - 1) {
		ssize_t r = read(0, line + n, 1);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return 0;
		if (line[n++] == '\n')
			break;
	}
	line[n] = 0;
	return 1;
}

__attribute__((unused)) static int verdict(void)
{
	if (GET(wrong))
		say("wrong %ld", GET(wrong));
	else
		say("right");
	return GET(wrong) != 0;
}

__attribute__((unused)) static pthread_t thread(void *(*f)(void *), long arg)
{
	pthread_t t;
	int err = pthread_create(&t, NULL, f, (void *)arg);
	if (err) {
		dprintf(2, "pthread_create: %s\n", strerror(err));
		_exit(98);
	}
	return t;
}

// outlive waits until the main thread, which calls pthread_exit, is a zombie.
__attribute__((unused)) static void outlive(pthread_t leader)
{
	char stat[512] = "", path[64];
	pthread_join(leader, NULL);
	sprintf(path, "/proc/self/task/%d/stat", getpid());
	while (!strstr(stat, ") Z ")) {
		FILE *f = fopen(path, "r");
		CHECK(fgets(stat, sizeof stat, f) != NULL);
		fclose(f);
	}
}

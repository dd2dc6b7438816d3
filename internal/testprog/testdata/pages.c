// 64 functions, each in a page of its own. "poke N": the program itself changes a byte behind function N, in its page. "fork": a child that waits; "child PID".
// "call": it calls all functions; "sum N". "peek N": its byte behind function N; "byte N". "end": it ends; "ended". At the end "right".
#include "prog.h"
#include <sys/mman.h>

#define BEHIND 2048

static volatile long sum;

#define F(n) __attribute__((noinline, aligned(4096))) void pg_##n(void) { sum += 1##n; }
#define F1(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
#define ALL F1(0) F1(1) F1(2) F1(3) F1(4) F1(5) F1(6) F1(7)
ALL
__attribute__((noinline, aligned(4096))) void behind(void) { sum++; }
#undef F
#define F(n) pg_##n,
static void (*const all[])(void) = { ALL };

static long call_all(void)
{
	sum = 0;
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		all[i]();
	return sum;
}

static unsigned char *byte(long n) { return (unsigned char *)all[n] + BEHIND; }

int main(void)
{
	char line[64];
	int to[2], from[2];
	pid_t child = 0;
	long n;
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "fork\n")) {
			CHECK(pipe(to) == 0 && pipe(from) == 0);
			child = fork();
			CHECK(child >= 0);
			while (child == 0) {
				if (read(to[0], &n, sizeof n) != sizeof n || n < -1)
					_exit(7);
				n = n < 0 ? call_all() : *byte(n);
				CHECK(write(from[1], &n, sizeof n) == sizeof n);
			}
			say("child %d", child);
		} else if (sscanf(line, "poke %ld", &n) == 1) {
			void *page = (void *)((unsigned long)byte(n) & -4096UL);
			CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
			*byte(n) ^= 0xff;
			CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
			say("poked %d", *byte(n));
		} else if (!strcmp(line, "call\n") || sscanf(line, "peek %ld", &n) == 1) {
			const char *what = line[0] == 'c' ? "sum" : "byte";
			if (line[0] == 'c')
				n = -1;
			CHECK(write(to[1], &n, sizeof n) == sizeof n && read(from[0], &n, sizeof n) == sizeof n);
			say("%s %ld", what, n);
		} else if (!strcmp(line, "end\n")) {
			int status;
			n = -2;
			CHECK(write(to[1], &n, sizeof n) == sizeof n && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
			CHECK(close(to[0]) == 0 && close(to[1]) == 0 && close(from[0]) == 0 && close(from[1]) == 0);
			say("ended");
		}
	}
	CHECK(call_all() > 0);
	behind();
	say("right");
	return 0;
}

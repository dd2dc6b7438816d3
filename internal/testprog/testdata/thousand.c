// A program of 1,000 functions. "fork": a child that waits; "child PID". "call": it calls all of them; "sum N". "mine": the parent does; "mine N". "end": it ends; "ended".
// At the end "right".
#include "prog.h"

static volatile long sum;

#define F(n) __attribute__((noinline)) void fn_##n(void) { sum += 1##n; }
#define F1(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#define F2(n) F1(n##0) F1(n##1) F1(n##2) F1(n##3) F1(n##4) F1(n##5) F1(n##6) F1(n##7) F1(n##8) F1(n##9)
F2(0) F2(1) F2(2) F2(3) F2(4) F2(5) F2(6) F2(7) F2(8) F2(9)
#undef F
#define F(n) fn_##n();

static long all(void)
{
	sum = 0;
	F2(0) F2(1) F2(2) F2(3) F2(4) F2(5) F2(6) F2(7) F2(8) F2(9)
	return sum;
}

int main(void)
{
	char line[64], what;
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
				if (read(to[0], &what, 1) != 1 || what == 'e')
					_exit(7);
				n = all();
				CHECK(write(from[1], &n, sizeof n) == sizeof n);
			}
			say("child %d", child);
		} else if (!strcmp(line, "call\n")) {
			CHECK(write(to[1], "c", 1) == 1 && read(from[0], &n, sizeof n) == sizeof n);
			say("sum %ld", n);
		} else if (!strcmp(line, "mine\n")) {
			say("mine %ld", all());
		} else if (!strcmp(line, "end\n")) {
			int status;
			CHECK(write(to[1], "e", 1) == 1 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
			CHECK(close(to[0]) == 0 && close(to[1]) == 0 && close(from[0]) == 0 && close(from[1]) == 0);
			say("ended");
		}
	}
	CHECK(all() == 1499500);
	say("right");
	return 0;
}

/* Recursion, a callback through libc, frames without frame pointer, a variable frame, a signal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile int sink;

void __attribute__((noinline)) marker(void) { sink++; }
static int __attribute__((noinline)) compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}
static int __attribute__((noinline)) deep(int n, char *p)
{
	char buf[n * 16 + 1];
	memset(buf, n, sizeof buf);
	sink += buf[n];
	return n ? deep(n - 1, buf) + buf[0] : (int)strlen("abc") + *p;
}
static void handler(int sig)
{
	(void)sig;
	marker();
}
void __attribute__((noinline)) work(void)
{
	int v[] = {5, 3, 9, 1};
	char text[64];
	qsort(v, 4, sizeof v[0], compare);
	snprintf(text, sizeof text, "%d %s", v[0], "x");
	sink += deep(3, text);
}
__attribute__((noreturn, noinline)) void stop(void) { _exit(0); }
/* Its last instruction is the call; what follows has another frame. */
__attribute__((noreturn, noinline)) void last(int n)
{
	volatile char room[200];
	room[n] = 1;
	stop();
}
void __attribute__((noinline)) follows(void) { sink++; }
int main(void)
{
	signal(SIGUSR1, handler);
	work();
	raise(SIGUSR1);
	last(sink & 7);
}

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) long handle(long n)
{
	__asm__ volatile("" : "+r"(n) : : "memory");
	return n + 1;
}
__attribute__((noinline)) long one(long n) { return handle(n) * 2; }
__attribute__((noinline)) long two(long n) { return handle(n) + handle(n + 1); }
static void on(int sig)
{
	if (handle(sig))
		__asm__ volatile("" : : : "memory"); /* no jump to it */
}
int main(void)
{
	signal(SIGUSR1, on);
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			one(1);
			two(2);
			raise(SIGUSR1);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

/* Prints the addresses of its own functions, then waits for end of input. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

int counter = 1;

static int __attribute__((noinline)) hidden(int x) { return x * counter; }
int __attribute__((noinline)) visible(int x, const char *s) { return hidden(x) + (int)strlen(s); }
int alias_of_visible(int, const char *) __attribute__((alias("visible")));

int main(int argc, char **argv)
{
	char buf[64];
	memset(buf, argc, sizeof buf);
	memcpy(buf, argv[0], 4);
	printf("main %p\n", (void *)main);
	printf("hidden %p\n", (void *)hidden);
	printf("visible %p\n", (void *)visible);
	printf("alias_of_visible %p\n", (void *)alias_of_visible);
	printf("malloc %p\n", (void *)malloc);
	printf("strlen %p\n", (void *)strlen);
	printf("memcpy %p\n", (void *)memcpy);
	printf("gettimeofday %p\n", (void *)gettimeofday);
	printf("ready %d\n", visible(argc, argv[0]));
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

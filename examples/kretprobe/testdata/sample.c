// What the example probes: for every line of input a call of kernel_clone, and one in another
// thread.
#include <pthread.h>
#include <stdio.h>

__attribute__((noinline)) long kernel_clone(long flags)
{
	__asm__ volatile("");
	return flags + 1;
}

static void *helper(void *flags)
{
	return (void *)(kernel_clone((long)flags) - 1);
}

int main(void)
{
	char line[16];
	long n = 100;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		pthread_t t;
		if (pthread_create(&t, NULL, helper, (void *)n) || pthread_join(t, NULL))
			return 1;
		n = kernel_clone(n);
	}
	return 0;
}

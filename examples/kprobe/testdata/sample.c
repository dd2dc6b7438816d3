// What the example probes: a call of kernel_clone for every line of input.
#include <stdio.h>

__attribute__((noinline)) int kernel_clone(int flags)
{
	__asm__ volatile("");
	return flags + 1;
}

__attribute__((noinline)) int sys_fork(int n)
{
	return kernel_clone(n) * 2;
}

int main(void)
{
	char line[16];
	int n = 0;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		n = sys_fork(n);
	return 0;
}

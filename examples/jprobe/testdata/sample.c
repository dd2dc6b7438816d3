// What the example probes: a call of kernel_clone for every line of input. What
// stands behind tls is passed on the stack, but for share.
#include <stdio.h>

struct limits { long cpu, memory, files; };

__attribute__((noinline)) long kernel_clone(unsigned long flags, unsigned long stack, unsigned long size, int *parent_tid,
					    int *child_tid, unsigned long tls, const char *comm, int niceness,
					    struct limits limits, double share)
{
	__asm__ volatile("");
	return flags + stack + size + *parent_tid + !child_tid + tls + comm[0] + niceness + limits.files + (long)share;
}

int main(void)
{
	char line[16];
	long n = 0;
	int calls = 0, tid = 4711;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		n += kernel_clone(0x11, 0x7000, 0x800, &tid, calls++ % 2 ? &tid : NULL, 42, "worker", -5, (struct limits){ 1, 1L << 33, 64 }, 0.25);
	return n == 0;
}

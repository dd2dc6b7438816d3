// What the example probes: a family of functions, called for every line of input.
#include <stdio.h>

__attribute__((noinline)) int vfs_open(int n)
{
	__asm__ volatile("");
	return n + 3;
}

__attribute__((noinline)) int vfs_read(int fd)
{
	__asm__ volatile("");
	return fd * 100;
}

__attribute__((noinline)) void vfs_close(int fd)
{
	__asm__ volatile("" : : "r"(fd));
}

__attribute__((noinline)) int sys_copy(int n)
{
	int fd = vfs_open(n), size = vfs_read(fd);
	vfs_close(fd);
	return size;
}

int main(void)
{
	char line[16];
	int n = 0;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		sys_copy(n++);
	return 0;
}

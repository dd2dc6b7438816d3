// Makes a 32-bit system call, getpid(2), and ends with status 0 if it is answered.
#include <unistd.h>

int main(void)
{
	long got;
	__asm__ volatile("int $0x80" : "=a"(got) : "a"(20L) : "r8", "r9", "r10", "r11", "memory");
	return got != getpid();
}

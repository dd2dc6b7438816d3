// A library that chooses the implementation of a function, with -shared -fPIC: preloaded, it keeps the dynamic linker at that until a byte comes on
// standard input. It says so.
static long call(long number, long fd, const void *b, long n)
{
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(fd), "S"(b), "d"(n) : "rcx", "r11", "memory"); // no function of another library works yet
	return r;
}

__attribute__((noinline, noipa)) long chooses_one(long v) { return v + 1; }
__attribute__((noinline, noipa)) long chooses_two(long v) { return v + 2; }

static void *chooses(void)
{
	char b;
	call(1, 1, "choosing\n", 9);
	call(0, 0, &b, 1);
	return chooses_one;
}

long chooses_late(long v) __attribute__((ifunc("chooses")));
long (*volatile chooses_pointer)(long) = chooses_late;

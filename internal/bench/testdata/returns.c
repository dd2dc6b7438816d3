// A program that calls a function from few places, from many, and from code that it has generated. Commands on standard input, one answer line each, "ns T" for N calls:
//   few N         from one place
//   many N        from 400 places in turns
//   generated N   from one place in generated code
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

volatile long sum;

__attribute__((noinline)) long work(long n)
{
	sum += n;
	return n;
}

#define C(n) __attribute__((noinline)) static long call_##n(long k) { return work(k) + 1##n; }
#define C1(n) C(n##0) C(n##1) C(n##2) C(n##3) C(n##4) C(n##5) C(n##6) C(n##7) C(n##8) C(n##9)
#define C2(n) C1(n##0) C1(n##1) C1(n##2) C1(n##3) C1(n##4) C1(n##5) C1(n##6) C1(n##7) C1(n##8) C1(n##9)
C2(0) C2(1) C2(2) C2(3)

#define P(n) call_##n,
#define P1(n) P(n##0) P(n##1) P(n##2) P(n##3) P(n##4) P(n##5) P(n##6) P(n##7) P(n##8) P(n##9)
#define P2(n) P1(n##0) P1(n##1) P1(n##2) P1(n##3) P1(n##4) P1(n##5) P1(n##6) P1(n##7) P1(n##8) P1(n##9)
static long (*callers[])(long) = { P2(0) P2(1) P2(2) P2(3) };

// generate makes code that calls work: sub $8,%rsp; movabs $work,%rax; call *%rax; add $8,%rsp; ret.
static long (*generate(void))(long)
{
	unsigned char code[] = { 0x48, 0x83, 0xec, 8, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8, 0xc3 };
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long (*to)(long) = work;
	if (page == MAP_FAILED)
		exit(1);
	memcpy(code + 6, &to, 8);
	memcpy(page, code, sizeof code);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		exit(1);
	return (long (*)(long))page;
}

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(void)
{
	long (*generated)(long) = generate();
	char what[32], line[128];
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof line, stdin)) {
		long n = 0, from = now();
		if (sscanf(line, "%31s %ld", what, &n) != 2)
			continue;
		for (long k = 0; k < n; k++)
			if (!strcmp(what, "few"))
				sum += callers[0](k);
			else if (!strcmp(what, "many"))
				sum += callers[k % 400](k);
			else
				sum += generated(k);
		printf("ns %ld\n", now() - from);
	}
}

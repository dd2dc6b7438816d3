// A program in which killed tracers seem to have left regions, made so that whoever undoes them has the most to do. Argument 1 says what there
// is much of: "records", "detours", "resume", "stacks", "loops", "all", or "heirs" and argument 2 how many children have copies. It says
// "ready", and waits for the end of its input.
#include "prog.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { REGIONS = 16, ARENAS = 1024, THREADS = 8, CODE = 4096, HEAD = 4096 + ARENAS * 96, PAGE = 4096 };
#define BASE 0x200000000000UL   // of the regions
#define APART (1UL << 32)
#define DATA (16UL << 20)       // of an arena
#define STACKS 0x300000000000UL // 4 GiB, the same MiB again and again
#define TEXT 0x400000000000UL   // what records are about

static int has(const char *what, const char *kind) { return !strcmp(what, kind) || !strcmp(what, "all"); }

__attribute__((target("sse4.2"))) static uint32_t crc(const void *p, int n)
{
	uint64_t c = ~0u;
	for (; n >= 8; n -= 8, p = (char *)p + 8)
		c = __builtin_ia32_crc32di(c, *(uint64_t *)p);
	for (; n >= 4; n -= 4, p = (char *)p + 4)
		c = __builtin_ia32_crc32si(c, *(uint32_t *)p);
	return ~(uint32_t)c ? ~(uint32_t)c : 1;
}

static char *map(uint64_t at, uint64_t len, int prot, int fd)
{
	char *p = mmap((void *)at, len, prot, MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

// journal writes records of breakpoints that stand, or of many at the same place.
static void journal(char *p, uint64_t len, uint64_t first)
{
	for (uint64_t i = 0; i < len / 64; i++) {
		char *r = p + 64 * i;
		uint64_t at = TEXT + (first + i) * 0x9e3779b1 % (4 << 20) * (i % 2 + 1);
		*(uint16_t *)(r + 4) = 20;
		*(uint64_t *)(r + 8) = i + 1;
		*(uint64_t *)(r + 16) = at;
		memset(r + 24, 0x0f, 1), memset(r + 25, 5, 1), memset(r + 26, 0x90, 18); // syscall; nop...
		memset(r + 44, 0xcc, 20);
		*(uint32_t *)r = crc(r + 4, 60);
	}
}

// detours writes records of detours: each is one byte further on, and all lead to each other.
static void detours(char *p, uint64_t len, uint64_t code)
{
	for (uint64_t i = 0; i < len / 128; i++) {
		char *r = p + 128 * i;
		uint64_t site = code + (i * 7 + 3) % 2000;
		*(uint16_t *)(r + 4) = 8;
		*(uint64_t *)(r + 8) = site;
		*(uint64_t *)(r + 16) = site + 900;
		*(uint64_t *)(r + 32) = code + i % 2000;
		*(uint32_t *)(r + 40) = 60000;
		*(uint32_t *)(r + 44) = 100;
		for (int k = 0; k < 8; k++) {
			*(uint32_t *)(r + 56 + 8 * k) = k;
			*(uint16_t *)(r + 60 + 8 * k) = 1;
			r[62 + 8 * k] = k * 30, r[63 + 8 * k] = 1;
		}
		*(uint32_t *)r = crc(r + 4, 124);
	}
}

// resume fills a table, but for what leads the threads' code round and round.
static void resume(char *p, uint64_t code)
{
	const int bits = 17;
	((uint64_t *)p)[0] = 64 - bits, ((uint64_t *)p)[1] = (1 << bits) - 1;
	uint64_t(*e)[2] = (void *)(p + 64);
	for (int i = 0; i < 1 << bits; i++)
		e[i][0] = 1, e[i][1] = code;
}

static void region(int n, const char *what)
{
	uint64_t at = BASE + n * APART, data = at + (1 << 20), code = data + DATA;
	char *h = map(at, 1 << 20, PROT_READ | PROT_WRITE, -1);
	map(data, DATA, PROT_READ | PROT_WRITE, -1);
	char *c = map(code, CODE, PROT_READ | PROT_WRITE | PROT_EXEC, -1);
	memset(c, 0x90, CODE);
	c[CODE - 5] = (char)0xe9, *(int32_t *)(c + CODE - 4) = -CODE; // round and round
	uint64_t half = DATA / 4, slots = half, records = 2 * half, table = 3 * half;
	if (has(what, "records"))
		journal((char *)data, half, n * (half / 64));
	if (has(what, "detours"))
		detours((char *)data + records, half, code);
	if (has(what, "resume")) {
		resume((char *)data + table, code);
		*(uint64_t *)(h + 56) = data + table;
	}
	for (uint64_t i = 0; i < CODE / 64; i++) // slots whose sites are in the code itself
		((uint64_t *)(data + slots))[i] = code + i * 61 % CODE;
	for (int i = 0; i < ARENAS; i++) { // all the same
		uint64_t e[12] = { 0, data, code, code, code + CODE, slots, CODE / 64 * 8, 0, half, i % 2, records, half };
		memcpy(h + 4096 + 96 * i, e, sizeof e);
	}
	*(uint64_t *)(h + 2048 + 1024) = code + 64, *(uint64_t *)(h + 2048 + 1032) = code + 128; // a guard
	*(uint32_t *)(h + 8) = 3 /* trampoline.Version */, *(uint32_t *)(h + 12) = strcmp(what, "heirs") ? ARENAS : 2, *(uint32_t *)(h + 36) = 64;
	memcpy(h + 16, "amd64", 5);
	memcpy(h, "gokprobe", 8);
}

// stacks is memory full of contexts, each of which tells of another place there.
static void stacks(void)
{
	int fd = memfd_create("stacks", 0);
	CHECK(ftruncate(fd, 1 << 20) == 0);
	for (uint64_t i = 0; i < 4096; i++)
		map(STACKS + (i << 20), 1 << 20, PROT_READ | PROT_WRITE, fd);
	close(fd);
	uint64_t(*c)[4] = (void *)STACKS;
	for (uint64_t i = 0; i < 1 << 15; i++) {
		c[i][0] = STACKS + i * 0x9e3779b97f4a7c15UL % (4095UL << 20) / 8 * 8;
		c[i][1] = BASE + i % REGIONS * APART + (1 << 20) + DATA + i % CODE;
		c[i][2] = 0x202, c[i][3] = 0x002b000000000033;
	}
}

struct place { uint64_t sp, ip; };

static void *inside(void *arg)
{
	struct place p = *(struct place *)arg;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	asm volatile("mov %0, %%rsp\n\tjmp *%1" : : "r"(p.sp), "r"(p.ip) : "memory");
	__builtin_unreachable();
}

static void heirs(int n)
{
	for (int i = 0; i < n; i++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "all";
	char line[64];
	if (!strcmp(what, "heirs")) {
		region(0, what);
		heirs(atoi(argv[2]));
		munmap((void *)BASE, 1 << 20); // it has none itself
	} else {
		char *text = map(TEXT, (8 << 20) + PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, -1);
		memset(text, 0xcc, 8 << 20);
		memcpy(text + (8 << 20), "\xeb\xfe", 2); // round and round
		for (int i = 0; i < REGIONS; i++)
			region(i, what);
		if (has(what, "stacks"))
			stacks();
		static struct place p[THREADS];
		pthread_t t;
		for (int i = 0; i < THREADS && (has(what, "stacks") || has(what, "loops") || has(what, "resume") || has(what, "detours")); i++) {
			p[i].sp = has(what, "stacks") ? STACKS + i * (33 << 20) + 24 : (uint64_t)map(STACKS + (8UL << 32) + i * (2 << 20), 1 << 20, PROT_READ | PROT_WRITE, -1) + 4096;
			p[i].ip = strcmp(what, "stacks") ? BASE + i * APART + (1 << 20) + DATA + 200 : TEXT + (8 << 20);
			pthread_create(&t, NULL, inside, &p[i]);
		}
	}
	say("ready");
	while (hear(line, sizeof line))
		;
	_exit(0);
}

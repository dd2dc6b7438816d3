// A program that changes, copies and reads its own code, as hotpatchers, hooks and packers do:
//
//	write F OFF HEX  writes bytes at F+OFF, as mprotect(2) and memcpy do: "wrote"
//	call F V         "ret R"
//	copy F N         puts N bytes of F elsewhere: "copied"
//	run V            calls the last copy: "ret R"
//	sum F N          the bytes of F added up: "sum S"
//	trap             executes a breakpoint of its own, with a handler: "trapped"
#include "prog.h"
#include <sys/mman.h>

#define FN(name, body) \
	__asm__(".pushsection .text\n.p2align 5\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
		body "\n.size " #name ",.-" #name "\n.popsection"); \
	long name(long)

FN(p_mov, "mov $7,%eax; ret; nop; nop; nop; nop; nop; nop; nop; nop");
FN(p_multi, "push %rbx; mov %rdi,%rbx; lea 1(%rbx),%rax; pop %rbx; ret");
FN(p_lea, "lea 1(%rdi),%rax; ret; nop; nop; nop; nop");
FN(p_nop5, ".byte 0x0f,0x1f,0x44,0,0; lea 1(%rdi),%rax; ret");
FN(p_long, "movabs $0x1122334455667788,%rax; lea 5(%rdi),%rax; ret");
FN(p_other, "lea 100(%rdi),%rax; ret");

static struct { const char *name; long (*f)(long); } all[] = {
	{ "p_mov", p_mov }, { "p_multi", p_multi }, { "p_lea", p_lea }, { "p_nop5", p_nop5 }, { "p_long", p_long }, { "p_other", p_other },
};
static volatile sig_atomic_t traps;
static long (*last)(long);

static void *find(const char *name)
{
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i].name, name))
			return all[i].f;
	CHECK(!"known function");
	_exit(97);
}

static void change(unsigned char *at, const char *hex)
{
	unsigned char b[64];
	int n = 0, v;
	for (; sscanf(hex + 2 * n, "%2x", &v) == 1; n++)
		b[n] = v;
	char *page = (char *)((long)at & -4096L);
	CHECK(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	memcpy(at, b, n);
	CHECK(mprotect(page, 8192, PROT_READ | PROT_EXEC) == 0);
}

/* copied puts a copy where nothing is near: a jump of a tracer's that is copied leads as far from there as from its place, and should not come out in code by chance. */
static void *copied(const void *from, long n)
{
	void *p = mmap((void *)0x230000000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return memcpy(p, from, n);
}

static void trapped(int sig) { traps++; }

int main(void)
{
	char line[256], name[64], hex[128];
	long n;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "write %63s %ld %127s", name, &n, hex) == 3) {
			change((unsigned char *)find(name) + n, hex);
			say("wrote");
		} else if (sscanf(line, "call %63s %ld", name, &n) == 2) {
			say("ret %ld", ((long (*)(long))find(name))(n));
		} else if (sscanf(line, "copy %63s %ld", name, &n) == 2) {
			last = copied(find(name), n);
			say("copied");
		} else if (sscanf(line, "run %ld", &n) == 1) {
			say("ret %ld", last(n));
		} else if (sscanf(line, "sum %63s %ld", name, &n) == 2) {
			unsigned char *b = find(name);
			long s = 0;
			while (n--)
				s += *b++;
			say("sum %ld", s);
		} else if (!strcmp(line, "trap\n")) {
			CHECK(signal(SIGTRAP, trapped) != SIG_ERR);
			__asm__ volatile("int3");
			CHECK(traps == 1);
			say("trapped");
		} else {
			CHECK(!"known command");
		}
	}
	return verdict();
}

// Registers across a call. "run N" fills all of them with values of its own, calls subject, which
// changes none, and compares all that can be seen after: general registers, flags, and what
// XSAVE stores, x87 and vector and mask registers. It does so N times, which begin with
// different values, and prints "ran N". "expect RAX RCX R11" has later runs expect these behind
// the call, "expect" none again.
#include "prog.h"
#include <cpuid.h>
#include <stddef.h>

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS, NREG };
static const char *names[] = { "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "flags" };

struct state {
	unsigned long reg[NREG];
	unsigned char ext[16384] __attribute__((aligned(64)));
};

// The assembly code finds them by their names, without a register.
__attribute__((visibility("hidden"))) struct state before, after;
__attribute__((visibility("hidden"))) unsigned long mask;
void fill_and_call(void);

#define LOAD(r, n) "mov before+8*" #n "(%rip),%" #r "\n"
#define STORE(r, n) "mov %" #r ",after+8*" #n "(%rip)\n"
#define ALL(f) f(rbx, 1) f(rcx, 2) f(rdx, 3) f(rsi, 4) f(rdi, 5) f(rbp, 6) f(r8, 7) f(r9, 8) f(r10, 9) f(r11, 10) f(r12, 11) f(r13, 12) f(r14, 13) f(r15, 14) f(rax, 0)
asm(".text\n.globl subject,fill_and_call\n"
    ".type subject,@function\nsubject: lea (%rdi),%rdi\nnop\nxchg %rsp,%rsp\nret\n.size subject,.-subject\n"
    ".type fill_and_call,@function\nfill_and_call:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov mask(%rip),%eax\nxor %edx,%edx\nxrstor64 before+128(%rip)\n"
    "push before+8*15(%rip)\npopf\n" ALL(LOAD)
    "call subject\n"
    ALL(STORE)
    "pushf\npop after+8*15(%rip)\ncld\n"
    "mov mask(%rip),%eax\nxor %edx,%edx\nxsave64 after+128(%rip)\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
    ".size fill_and_call,.-fill_and_call\n");

// Parts of the XSAVE area (SDM volume 1, chapter 13) and their bits in its header.
enum { X87 = 1, SSE = 2, AVX = 4, OPMASK = 0x20, ZMM_HI256 = 0x40, HI16_ZMM = 0x80 };

static unsigned long parts(void)
{
	unsigned a, b, c, d, lo, hi;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return 0;
	asm("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return lo & (X87 | SSE | AVX | OPMASK | ZMM_HI256 | HI16_ZMM);
}

static void fill(unsigned char *at, size_t n)
{
	while (n-- > 0)
		*at++ = random() >> 7;
}

static void fill_part(int part)
{
	unsigned size, offset, c, d;
	if (mask & 1UL << part && __get_cpuid_count(0xd, part, &size, &offset, &c, &d))
		fill(before.ext + offset, size);
}

static void prepare(void)
{
	enum { CARRY = 1, PARITY = 4, ADJUST = 0x10, ZERO = 0x40, SIGN = 0x80, DIRECTION = 0x400, OVERFLOW = 0x800, FIXED = 0x202 };
	for (int i = 0; i < NREG; i++)
		before.reg[i] = (unsigned long)random() << 33 ^ random() << 11 ^ random();
	before.reg[FLAGS] &= CARRY | PARITY | ADJUST | ZERO | SIGN | DIRECTION | OVERFLOW;
	before.reg[FLAGS] |= FIXED;
	unsigned char *x = before.ext;
	memset(x, 0, sizeof before.ext);
	*(unsigned short *)x = 0x37f;           // FCW
	x[4] = 0xff;                            // FTW: all are in use
	*(unsigned *)(x + 24) = 0x1f80 | 1 << 13; // MXCSR: rounds down
	for (int i = 0; i < 8; i++)
		fill(x + 32 + 16 * i, 10);
	fill(x + 160, 256);
	for (int part = 2; part < 8; part++)
		fill_part(part);
	*(unsigned long *)(x + 512) = mask; // XSTATE_BV
	memset(&after, 0, sizeof after);
}

static void compare(const unsigned long *expect)
{
	for (int i = 0; i < NREG; i++) {
		unsigned long want = before.reg[i];
		if (expect && (i == RAX || i == RCX || i == R11))
			want = expect[i == RAX ? 0 : i == RCX ? 1 : 2];
		if (after.reg[i] != want && ADD(wrong, 1) < 10)
			dprintf(2, "%s is %#lx, want %#lx\n", names[i], after.reg[i], want);
	}
	for (int i = 0; i < (int)sizeof before.ext; i++)
		if (after.ext[i] != before.ext[i] && (i < 28 || i > 31) && ADD(wrong, 1) < 10)
			dprintf(2, "byte %d of the XSAVE area is %#x, want %#x\n", i, after.ext[i], before.ext[i]);
}

int main(void)
{
	char line[128];
	long n;
	unsigned long want[3], *expect = NULL;
	_Static_assert(offsetof(struct state, ext) == 128, "as the assembly code has it");
	mask = parts();
	CHECK(mask & SSE);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "run %ld", &n) == 1) {
			for (long i = 0; i < n; i++) {
				prepare();
				fill_and_call();
				compare(expect);
			}
			say("ran %ld", n);
		} else if (sscanf(line, "expect %lu %lu %lu", want, want + 1, want + 2) == 3) {
			expect = want;
		} else if (!strcmp(line, "expect\n")) {
			expect = NULL;
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

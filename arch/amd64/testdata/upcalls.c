// upcalls FILE: runs threads through the code of an upcall's body, with random registers, and
// checks what comes out. The tracer's part of traps is played by a handler of SIGTRAP.
//
// FILE is mapped as data at 0x50000000 and, from 0x8000 on, as code at 0x60000000.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef uint64_t u64;

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, FLAGS = 16, WORDS };
enum { FREE, CLAIMED, POSTED, TAKEN, DECLINED, ANSWERED, CALLED };
enum { ARITHMETIC = 0x8d5 };

static const int greg[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
static const int boxword[16] = { 10, 11, 12, 5, 19, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0 }; // user_regs_struct
enum { BOX_FLAGS = 18, BOX_STATE = 224 };

static volatile struct control {
	u64 entry, trap, wait, start, threads, hits;
	u64 trapped, waited, declined, landing;
} *control = (void *)0x50000000;

static _Alignas(64) struct { u64 in[WORDS], out[WORDS], home; } contexts[64];
__thread u64 *context, entry, scratch;
static __thread u64 expect[WORDS];

extern void run(u64 *context);
extern char landed[];

__asm__(
	".globl run, landed\n"
	"run: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"mov %rsp,272(%rdi)\n"
	"push 128(%rdi); popfq\n"
	"mov 0(%rdi),%rax; mov 8(%rdi),%rcx; mov 16(%rdi),%rdx; mov 24(%rdi),%rbx; mov 32(%rdi),%rsp; mov 40(%rdi),%rbp; mov 48(%rdi),%rsi\n"
	"mov 64(%rdi),%r8; mov 72(%rdi),%r9; mov 80(%rdi),%r10; mov 88(%rdi),%r11; mov 96(%rdi),%r12; mov 104(%rdi),%r13; mov 112(%rdi),%r14; mov 120(%rdi),%r15\n"
	"mov 56(%rdi),%rdi\n"
	"jmp *%fs:entry@tpoff\n"
	"landed: mov %rdi,%fs:scratch@tpoff; mov %fs:context@tpoff,%rdi\n"
	"mov %rax,136(%rdi); mov %rcx,144(%rdi); mov %rdx,152(%rdi); mov %rbx,160(%rdi); mov %rsp,168(%rdi); mov %rbp,176(%rdi); mov %rsi,184(%rdi)\n"
	"mov %r8,200(%rdi); mov %r9,208(%rdi); mov %r10,216(%rdi); mov %r11,224(%rdi); mov %r12,232(%rdi); mov %r13,240(%rdi); mov %r14,248(%rdi); mov %r15,256(%rdi)\n"
	"mov 272(%rdi),%rsp\n"
	"pushfq; pop 264(%rdi); cld\n"
	"mov %fs:scratch@tpoff,%rax; mov %rax,192(%rdi)\n"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n");

// handle is what a handler does to registers.
static void handle(u64 *r)
{
	r[RDI] = 3 * r[RDI] + 1;
	r[15] ^= 0x5555;
	r[RAX] += 7;
	r[RCX] ^= r[RDX];
	r[FLAGS] ^= ARITHMETIC;
	if (r[RDI] & 2)
		r[RSP] -= 16;
}

static void fail(const char *what)
{
	dprintf(2, "%s\n", what);
	_exit(3);
}

static void check(const u64 *got, const u64 *want, const char *what)
{
	for (int i = 0; i < WORDS; i++)
		if (i == FLAGS ? (got[i] ^ want[i]) & ARITHMETIC : got[i] != want[i]) {
			dprintf(2, "%s: word %d is %lx, want %lx\n", what, i, got[i], want[i]);
			_exit(3);
		}
}

static void unbox(const char *box, u64 *r)
{
	for (int i = 0; i < 16; i++)
		r[i] = ((u64 *)box)[boxword[i]];
	r[FLAGS] = ((u64 *)box)[BOX_FLAGS];
}

static void trap(int sig, siginfo_t *info, void *uc)
{
	greg_t *g = ((ucontext_t *)uc)->uc_mcontext.gregs;
	u64 r[WORDS];
	for (int i = 0; i < 16; i++)
		r[i] = g[greg[i]];
	r[FLAGS] = g[REG_EFL];
	if (g[REG_RIP] == control->trap + 1) {
		check(r, context, "at a trap");
		handle(r);
		__atomic_add_fetch(&control->trapped, 1, __ATOMIC_RELAXED);
	} else if (g[REG_RIP] == control->wait + 1) {
		char *box = (char *)r[RCX];
		uint32_t *state = (uint32_t *)(box + BOX_STATE);
		uint32_t s;
		while (s = __atomic_load_n(state, __ATOMIC_ACQUIRE), s == TAKEN)
			usleep(1);
		unbox(box, r);
		if (s == DECLINED) {
			handle(r);
			__atomic_add_fetch(&control->declined, 1, __ATOMIC_RELAXED);
		} else if (s != ANSWERED && s != CALLED)
			fail("at a wait with a mailbox in a wrong state");
		__atomic_add_fetch(&control->waited, 1, __ATOMIC_RELAXED);
		__atomic_store_n(state, FREE, __ATOMIC_RELEASE);
	} else
		fail("a breakpoint nowhere");
	for (int i = 0; i < 16; i++)
		g[greg[i]] = r[i];
	g[REG_EFL] = (g[REG_EFL] & ~ARITHMETIC) | (r[FLAGS] & ARITHMETIC);
	g[REG_RIP] = control->start;
}

static void *thread(void *arg)
{
	long n = (long)arg;
	u64 seed = 88172645463325252ull * (n + 1);
	static char stacks[64][8192], signals[64][16384];
	stack_t alt = { .ss_sp = signals[n], .ss_size = sizeof signals[n] };
	sigaltstack(&alt, 0);
	context = contexts[n].in;
	entry = control->entry;
	for (u64 hit = 0; hit < control->hits; hit++) {
		u64 *in = contexts[n].in;
		for (int i = 0; i < WORDS; i++) {
			seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
			in[i] = seed;
		}
		in[RSP] = (u64)stacks[n] + 4096 + (seed & 0x7f8);
		in[FLAGS] = 0x202 | (in[FLAGS] & ARITHMETIC);
		memset((char *)in[RSP] - 128, (int)hit, 256);
		memcpy(expect, in, sizeof expect);
		handle(expect);
		run(in);
		check(contexts[n].out, expect, "behind the detour");
		for (int i = -128; i < 128; i++)
			if (((char *)in[RSP])[i] != (char)hit)
				fail("the stack or the red zone has changed");
	}
	return 0;
}

int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDWR);
	if (mmap((void *)0x50000000, 0x8000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
	    mmap((void *)0x60000000, 0x1000, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd, 0x8000) == MAP_FAILED)
		fail("mmap");
	struct sigaction sa = { .sa_sigaction = trap, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaction(SIGTRAP, &sa, 0);
	control->landing = (u64)landed;
	pthread_t t[64];
	for (long i = 0; i < (long)control->threads; i++)
		pthread_create(&t[i], 0, thread, (void *)i);
	for (u64 i = 0; i < control->threads; i++)
		pthread_join(t[i], 0);
	return 0;
}

// Functions for handlers to call. Commands: "go V" calls probed(V) and prints "ret R"; "many N"
// calls it N times, "shallow N" other; "recurse V" calls recursed_target; "state" passes state_site with all
// registers in use, and checks them behind it; "edge" calls probed at the very end of the stack;
// "jump" is "go" with a place for far_away to jump to, and prints "jumped" from there; "pair"
// has a second thread answer wait_for_other; "two" runs probed in one thread and other in a
// second one at once; "thread" runs probed in a thread of its own; "fault A" reads a long at A; "trap"
// takes a SIGTRAP that is pending and blocked, and unblocks it; "kernel" makes a system call.
#include "prog.h"
#include <cpuid.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int begun[2], answer[2], never[2];
static sigjmp_buf place;
static long handled, others, aligned_wrong;

REAL long probed(long v) { return v / 3; }
REAL long other(long v) { return v / 7; }
REAL long counted(long v) { return v + 1; }
// As in lib/tests/test_kprobes.c of the kernel.
REAL long recursed_target(long v) { return v / 5; }

// The caller's rsp is a multiple of 16, and DF is clear.
#define ENTRY() \
	do { \
		unsigned long flags_; \
		asm volatile("pushf; pop %0" : "=r"(flags_)); \
		if ((unsigned long)__builtin_frame_address(0) % 16 || flags_ >> 10 & 1) \
			aligned_wrong++; \
	} while (0)

#define F __attribute__((noinline, noipa, optimize("no-omit-frame-pointer")))
F long weigh(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	ENTRY();
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}
F long none(void) { ENTRY(); return 4711; }
F double half(long v) { ENTRY(); return v / 2.0; }

// What a function may do to the registers that it need not keep.
REAL long heavy(void)
{
	volatile long deep[64];
	long double sum = 0;
	for (int i = 0; i < 64; i++)
		deep[i] = i;
	for (int i = 0; i < 64; i++)
		sum += (long double)deep[i] * 1.5L;
	volatile long result = (long)sum, eight = 0;
	asm volatile("fld1; fld1; fld1; fld1; fld1; fld1; fld1; fld1\n" // as many as there is room for
		     "faddp; faddp; faddp; faddp; faddp; faddp; faddp; fistpll %0\n" : "=m"(eight));
	asm volatile("pcmpeqd %%xmm0,%%xmm0; movdqa %%xmm0,%%xmm7; pcmpeqd %%xmm15,%%xmm15" ::: "memory");
	if (__builtin_cpu_supports("avx"))
		asm volatile("vpcmpeqd %%xmm3,%%xmm3,%%xmm3; vzeroall; vcmptrueps %%ymm0,%%ymm0,%%ymm9" ::: "memory");
	if (__builtin_cpu_supports("avx512f"))
		asm volatile("vpternlogd $0xff,%%zmm17,%%zmm17,%%zmm17; kxnorw %%k1,%%k1,%%k1" ::: "memory");
	unsigned int csr = 0x7f80; // round toward zero
	asm volatile("ldmxcsr %0; fninit; fld1; fstp %%st(0)" :: "m"(csr));
	csr = 0x1f80;
	asm volatile("ldmxcsr %0" :: "m"(csr));
	return result + eight;
}

static char before[16384] __attribute__((aligned(64))), after[16384] __attribute__((aligned(64)));
static long regs_before[24], regs_after[24];
long state_site(void *, void *, long *, long *);
// rbx and r12 are the images, r13 and r14 the registers. Everything else holds a pattern, the red
// zone too.
asm(".text\n.globl state_site\n.type state_site,@function\nstate_site:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rdi,%rbx; mov %rsi,%r12; mov %rdx,%r13; mov %rcx,%r14\n"
    "mov $-1,%eax; mov $-1,%edx; xsave64 (%rbx)\n"
    "mov $0x1111,%ecx; mov $0x2222,%esi; mov $0x3333,%edi; mov $0x4444,%ebp; mov $0x5555,%r8d; mov $0x6666,%r9d\n"
    "mov $0x7777,%r10d; mov $0x8888,%r11d; mov $0x9999,%r15d\n"
    "movq $0xaaa,-8(%rsp); movq $0xbbb,-64(%rsp); movq $0xccc,-128(%rsp)\n"
    "stc; std\n"
    ".globl state_insn\nstate_insn: nop\n"
    "pushf; pop 0(%r14); cld\n"
    "mov %rcx,8(%r14); mov %rsi,16(%r14); mov %rdi,24(%r14); mov %rbp,32(%r14); mov %r8,40(%r14); mov %r9,48(%r14)\n"
    "mov %r10,56(%r14); mov %r11,64(%r14); mov %r15,72(%r14); mov %rax,80(%r14); mov %rdx,88(%r14)\n"
    "mov -64(%rsp),%rcx; mov %rcx,96(%r14); mov -128(%rsp),%rcx; mov %rcx,104(%r14)\n"
    "mov $-1,%eax; mov $-1,%edx; xsave64 (%r12)\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "ret\n.size state_site,.-state_site\n");

static void state(void)
{
	static const long want[] = { 0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666, 0x7777, 0x8888, 0x9999, 0xffffffff, 0xffffffff, 0xbbb, 0xccc };
	static const float pattern[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
	if (__builtin_cpu_supports("avx512f"))
		asm volatile("vmovups (%0),%%zmm5; vmovups (%0),%%zmm21; kmovw %1,%%k3" :: "r"(pattern), "r"(0x5a5a) : "memory");
	else if (__builtin_cpu_supports("avx"))
		asm volatile("vmovups (%0),%%ymm5; vmovups (%0),%%ymm12" :: "r"(pattern) : "memory");
	unsigned int csr = 0x9fc0;
	asm volatile("movups (%0),%%xmm1; movups (%0),%%xmm13; fldpi; fldl2e; fldln2; ldmxcsr %1" :: "r"(pattern), "m"(csr) : "memory");
	state_site(before, after, regs_before, regs_after);
	csr = 0x1f80;
	asm volatile("fstp %%st(0); fstp %%st(0); fstp %%st(0); ldmxcsr %0" :: "m"(csr));
	CHECK(memcmp(before, after, sizeof before) == 0);
	CHECK((regs_after[0] & 0x401) == 0x401);
	CHECK(memcmp(regs_after + 1, want, sizeof want) == 0);
}

REAL long forks(void)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(counted(6));
	CHECK(waitpid(pid, &status, 0) == pid);
	return WEXITSTATUS(status);
}
REAL long shell(void) { return WEXITSTATUS(system("exit 9")); }
REAL long vforks(void)
{
	int status = -1;
	pid_t pid = vfork();
	if (pid == 0)
		_exit(8);
	CHECK(waitpid(pid, &status, 0) == pid);
	return WEXITSTATUS(status);
}
static void *thread_body(void *v) { return (void *)counted((long)v); }
// The child, which shares all memory, ends long after it has said so.
REAL long long_vfork(void)
{
	pid_t pid = vfork();
	if (pid == 0) {
		say("in it");
		struct timespec t = { 0, 700000000 };
		nanosleep(&t, NULL);
		_exit(8);
	}
	return waitpid(pid, NULL, 0) == pid;
}
REAL long threads(void)
{
	void *got;
	pthread_join(thread(thread_body, 5), &got);
	return (long)got;
}
REAL long prints(long v)
{
	char *s = malloc(1000), *end;
	snprintf(s, 1000, "printed %ld %.3f", v, v / 8.0);
	say("%s", s);
	end = strchr(s, 0);
	long n = end - s;
	free(s);
	return n;
}

static long word(int fd) { long v = 0; CHECK(read(fd, &v, sizeof v) == sizeof v); return v; }
static void tell(int fd, long v) { CHECK(write(fd, &v, sizeof v) == sizeof v); }
REAL long wait_for_other(long v) { tell(begun[1], v); return word(answer[0]); }
static void *answerer(void *n)
{
	long v = word(begun[0]);
	for (long i = 0; i < (long)n; i++)
		ADD(others, counted(i) == i + 1);
	tell(answer[1], v + other(70));
	return NULL;
}

REAL long spin_on(void) { say("in it"); for (;;) asm volatile("pause"); }
REAL long spin_in(long v) { say("in it"); for (;;) counted(v); }
REAL long block(void) { char c; say("in it"); return read(never[0], &c, 1); }
REAL long masks(void)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	return block();
}

// Leaves a SIGTRAP pending and blocked; "trap" takes it.
REAL long keeps_trap(void)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGTRAP);
	sigprocmask(SIG_BLOCK, &s, NULL);
	return raise(SIGTRAP) + 1;
}
static int takes_trap(void)
{
	sigset_t s, was;
	sigemptyset(&s);
	sigaddset(&s, SIGTRAP);
	int got = sigtimedwait(&s, NULL, &(struct timespec){ 0, 0 });
	sigprocmask(SIG_UNBLOCK, &s, &was);
	return got == SIGTRAP && sigismember(&was, SIGTRAP);
}

REAL long faults(long kind)
{
	static volatile long zero;
	switch (kind) {
	case 0: return *(volatile long *)8;
	case 1: asm volatile("ud2"); break;
	case 2: return 5 / zero;
	case 3: asm volatile("int3"); break;
	case 4: asm volatile("int1"); break;
	}
	return 0;
}
REAL long faults_at(long v) { asm volatile(".globl fault_insn\nfault_insn: mov (%0),%0" : "+a"(v)); return v; }

static void on_signal(int sig) { ADD(handled, counted(sig) == sig + 1); }
static void far_away(int sig) { (void)sig; siglongjmp(place, 1); }
static void mend(int sig, siginfo_t *info, void *uc_)
{
	ucontext_t *uc = uc_;
	say("fault %d trapno %lld err %lld cr2 %lld addr %ld", sig, uc->uc_mcontext.gregs[REG_TRAPNO],
	    uc->uc_mcontext.gregs[REG_ERR], uc->uc_mcontext.gregs[REG_CR2], (long)info->si_addr);
	uc->uc_mcontext.gregs[REG_RIP] += 3;
	uc->uc_mcontext.gregs[REG_RAX] = 11;
}
REAL long signals(long sig)
{
	long was = GET(handled);
	raise(sig);
	return GET(handled) - was;
}
REAL long jumps(void) { raise(SIGUSR2); return 1; }
REAL long quits(long v) { exit(v); }
REAL long ends_thread(void) { pthread_exit(NULL); }
REAL long runs(void) { execl("/proc/self/exe", "call", "again", NULL); return -1; }

static void *run_probed(void *v) { say("ret %ld", probed((long)v)); return NULL; }
static void *run_other(void *v) { say("other %ld", other((long)v)); return NULL; }
REAL long fork_once(void)
{
	long r;
	asm volatile(".globl fork_insn\nfork_insn: syscall" : "=a"(r) : "a"(SYS_getppid) : "rcx", "r11", "memory");
	return r == getppid();
}

// Calls probed with rsp at the last bytes of the stack's mapping.
static void edge(void)
{
	char line[256];
	unsigned long start = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		if (strstr(line, "[stack]"))
			sscanf(line, "%lx", &start);
	fclose(f);
	long r;
	asm volatile("mov %%rsp,%%rbx; lea 96(%1),%%rsp; mov $30,%%edi; call probed; mov %%rbx,%%rsp"
		     : "=&a"(r) : "r"(start) : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
	say("ret %ld", r);
}

static void obey(const char *line)
{
	long v;
	pthread_t t[2];
	if (sscanf(line, "go %ld", &v) == 1) {
		say("ret %ld", probed(v));
	} else if (sscanf(line, "many %ld", &v) == 1) {
		for (long i = 0; i < v; i++)
			CHECK(probed(i) == i / 3);
		say("did %ld", v);
	} else if (sscanf(line, "shallow %ld", &v) == 1) {
		for (long i = 0; i < v; i++)
			CHECK(other(i) == i / 7);
		say("did %ld", v);
	} else if (sscanf(line, "recurse %ld", &v) == 1) {
		say("ret %ld", recursed_target(v));
	} else if (!strcmp(line, "state\n")) {
		state();
		say("passed");
	} else if (!strcmp(line, "edge\n")) {
		edge();
	} else if (sscanf(line, "jump %ld", &v) == 1) {
		if (sigsetjmp(place, 1) == 0)
			say("ret %ld", probed(v));
		else
			say("jumped");
	} else if (sscanf(line, "pair %ld", &v) == 1) {
		t[0] = thread(answerer, v);
		say("ret %ld", probed(30));
		pthread_join(t[0], NULL);
		say("others %ld", GET(others));
	} else if (!strcmp(line, "two\n")) {
		t[0] = thread(run_probed, 30);
		t[1] = thread(run_other, 70);
		pthread_join(t[0], NULL);
		pthread_join(t[1], NULL);
		say("both");
	} else if (!strcmp(line, "thread\n")) {
		pthread_join(thread(run_probed, 30), NULL);
		say("joined");
	} else if (sscanf(line, "fault %ld", &v) == 1) {
		say("ret %ld", faults_at(v));
	} else if (!strcmp(line, "trap\n")) {
		say("took %d", takes_trap());
	} else if (!strcmp(line, "kernel\n")) {
		say("ret %ld", fork_once());
	} else
		CHECK(!"a known command");
}

int main(int argc, char **argv)
{
	char line[128];
	(void)argv;
	struct sigaction mending = { .sa_sigaction = mend, .sa_flags = SA_SIGINFO };
	CHECK(pipe(begun) == 0 && pipe(answer) == 0 && pipe(never) == 0);
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, far_away);
	sigaction(SIGSEGV, &mending, NULL);
	say(argc > 1 ? "again" : "ready");
	while (hear(line, sizeof line))
		obey(line);
	CHECK(aligned_wrong == 0);
	return verdict();
}

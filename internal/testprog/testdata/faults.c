// Every way in which an instruction can fault, and what the program sees of it. The cases are
// in faultcases.h; each is run in these modes:
//   skip   the handler goes on behind the instruction
//   mend   the handler removes the cause, and the instruction is executed again
//   jump   the handler leaves with siglongjmp
//   stack  as skip, and the handler runs on the stack of the code that faulted
// "list" prints the label of each case and how often "run" executes it; "run" prints, for each
// signal, its siginfo and its ucontext, and then the registers and memory that the case ended with. The text is the same
// each time unless something interferes; "run NAME" runs one case. "die NAME" runs a case without handlers.
#include "prog.h"
#include <setjmp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "faultcases.h"

enum mend { LEAVE, NOTHING, MAP, CODE, REG, REG0, SEG, MEM, GROW, FLAGS, FPU, HOLE };
enum need { ALWAYS, AVX2, UMIP, FSGSBASE };
enum mode { SKIP, MEND, JUMP, STACK, MODES };
static const char *const modes[] = { "skip", "mend", "jump", "stack" };

// What a case starts with; the order of enter.
struct regs { long rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, flags; void (*start)(void); };
struct fxsave { uint16_t cwd, swd, ftw, fop; uint64_t rip, rdp; uint32_t mxcsr, mask; uint8_t st[128], xmm[256], rest[96]; } __attribute__((aligned(16)));
struct how { long rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, flags, mem[5]; int cw, mxcsr; enum need need; };
static struct test { const char *name; void (*start)(void); char *at; enum mend mend; long with; struct how how; int runs, risky; } *now;

struct regs in, out;
struct fxsave fpu_in, fpu_out, fpu_host;
long rsp_host;
char hole[4096] __attribute__((aligned(4096))), room[4096] __attribute__((aligned(4096)));
void f_end(void), enter(void), on_fault(int, siginfo_t *, void *);
long h_push(long);

#define X(name, before, insn, after, mend, with, ...) \
	"e_" #name ":\n" before "\n" \
	".globl f_" #name "\n.type f_" #name ",@function\nf_" #name ":\n" insn "\n.size f_" #name ",.-f_" #name "\n" \
	after "\njmp f_end\n"
asm(".text\n" CASES);
#undef X
#define X(name, before, insn, after, mend, with, ...) extern void e_##name(void); extern char f_##name[];
CASES
#undef X
#define X(name, before, insn, after, mend, with, ...) { #name, e_##name, f_##name, mend, with, { __VA_ARGS__ }, 0, 0 },
static struct test tests[] = { CASES };
#define NTESTS (sizeof tests / sizeof *tests)

asm(".globl enter\n.type enter,@function\nenter:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,rsp_host(%rip)\nfxsave64 fpu_host(%rip)\nfxrstor64 fpu_in(%rip)\n"
    "push in+128(%rip)\npopf\n"
    "mov in(%rip),%rax\nmov in+8(%rip),%rbx\nmov in+16(%rip),%rcx\nmov in+24(%rip),%rdx\n"
    "mov in+32(%rip),%rsi\nmov in+40(%rip),%rdi\nmov in+48(%rip),%rbp\nmov in+56(%rip),%rsp\n"
    "mov in+64(%rip),%r8\nmov in+72(%rip),%r9\nmov in+80(%rip),%r10\nmov in+88(%rip),%r11\n"
    "mov in+96(%rip),%r12\nmov in+104(%rip),%r13\nmov in+112(%rip),%r14\nmov in+120(%rip),%r15\n"
    "jmp *in+136(%rip)\n.size enter,.-enter\n"
    ".globl f_end\n.type f_end,@function\nf_end:\n"
    "mov %rax,out(%rip)\nmov %rbx,out+8(%rip)\nmov %rcx,out+16(%rip)\nmov %rdx,out+24(%rip)\n"
    "mov %rsi,out+32(%rip)\nmov %rdi,out+40(%rip)\nmov %rbp,out+48(%rip)\nmov %rsp,out+56(%rip)\n"
    "mov %r8,out+64(%rip)\nmov %r9,out+72(%rip)\nmov %r10,out+80(%rip)\nmov %r11,out+88(%rip)\n"
    "mov %r12,out+96(%rip)\nmov %r13,out+104(%rip)\nmov %r14,out+112(%rip)\nmov %r15,out+120(%rip)\n"
    "mov rsp_host(%rip),%rsp\npushf\npop out+128(%rip)\npush $2\npopf\n"
    "fxsave64 fpu_out(%rip)\nfxrstor64 fpu_host(%rip)\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n.size f_end,.-f_end\n"
    // The handler must not run with the flag AC.
    "fault_entry:\npushf\nandl $~0x40000,(%rsp)\npopf\njmp on_fault\n"
    "user_entry:\npushf\nandl $~0x40000,(%rsp)\npopf\njmp on_user\n"
    // What the handler itself executes under probes.
    ".globl h_push,h_call,h_pop,h_ret,h_leaf,h_back\n"
    ".type h_push,@function\n.type h_call,@function\n.type h_pop,@function\n.type h_ret,@function\n.type h_leaf,@function\n.type h_back,@function\n"
    "h_push:\npush %rbx\n.size h_push,.-h_push\nh_call:\ncall h_leaf\n.size h_call,.-h_call\n"
    "h_pop:\npop %rbx\n.size h_pop,.-h_pop\nh_ret:\nret\n.size h_ret,.-h_ret\n"
    "h_leaf:\nlea 1(%rdi),%rax\n.size h_leaf,.-h_leaf\nh_back:\nret\n.size h_back,.-h_back\n");
void fault_entry(void), user_entry(int, siginfo_t *, void *);
static const char *const inner[] = { "h_push", "h_call", "h_pop", "h_ret", "h_leaf", "h_back" };

static enum mode mode;
static int signals, file, quiet;
static long users; // SIGUSR1 that arrived, wherever the program was
static long in_handler; // times h_push was called
static sigjmp_buf back;
static char text[16384], alt[65536] __attribute__((aligned(64)));
static int used;

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	used += vsnprintf(text + used, sizeof text - used, fmt, ap);
	va_end(ap);
	CHECK(used < (int)sizeof text);
}

static uint64_t sum(const void *p, long n)
{
	uint64_t h = 0xcbf29ce484222325;
	for (long i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3;
	return h;
}

static int resumes(void);

// The address of the last x87 instruction is kept by all processors, and over a switch to
// another thread, only while its exception is pending.
static void note_fpu(const struct fxsave *f)
{
	int pending = f->swd & 0x80;
	uint64_t kept = resumes() ? -1 : 0xffffffff; // such a hypervisor keeps the lower half only
	note(" cw %x sw %x tw %x op %x ip %lx dp %lx mxcsr %x regs %lx", f->cwd, f->swd, f->ftw, pending ? f->fop : 0,
	     pending ? f->rip & kept : 0, pending ? f->rdp & kept : 0, f->mxcsr, sum(f->st, sizeof f->st + sizeof f->xmm));
}

// The handler's frame may be on the stack that is summed, so that is left out then.
static void note_memory(void) { note(" data %lx stack %lx\n", sum((void *)G, 0x2000), mode == STACK ? 0 : sum((void *)STK, 0x10000)); }

static void words(long at, long n, long w)
{
	for (long i = 0; i < n; i++)
		((long *)at)[i] = w;
}

static void map(long at, long size, int prot)
{
	CHECK(mmap((void *)at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (void *)at);
}

// code fills a page with what leads to f_end from anywhere in it.
static void code(long at, int prot)
{
	long end = (long)f_end;
	map(at, 0x1000, PROT_READ | PROT_WRITE);
	memset((void *)at, 0x90, 0x1000);
	memcpy((char *)at + 0xff0, "\xff\x25\0\0\0", 6);
	memcpy((char *)at + 0xff6, &end, 8);
	CHECK(mprotect((void *)at, 0x1000, prot) == 0);
}

static void reset(const struct how *how)
{
	munmap((void *)(G - 0x10000), 0x100000);
	map(G, 0x2000, PROT_READ | PROT_WRITE);
	for (int i = 0; i < 0x2000; i++)
		((char *)G)[i] = i * 7 + i / 256 + 3;
	words(G, 4, LOW);
	words(ZERO, 8, 0);
	if (how->mem[0] | how->mem[1])
		memcpy((void *)G, how->mem, sizeof how->mem);
	map(NONE, 0x1000, PROT_NONE);
	map(RO, 0x1000, PROT_READ);
	code(NX, PROT_READ | PROT_WRITE);
	CHECK(ftruncate(file, 0) == 0 && ftruncate(file, 0x1000) == 0);
	CHECK(mmap((void *)(BUS - 0x1000), 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == (void *)(BUS - 0x1000));
	map(STK, 0x10000, PROT_READ | PROT_WRITE);
	CHECK(mprotect(hole, sizeof hole, PROT_READ | PROT_WRITE) == 0);
	words((long)hole, 512, LOW);
	CHECK(mprotect(hole, sizeof hole, PROT_NONE) == 0);
}

static void mend(ucontext_t *uc)
{
	switch (now->mend) {
	case MAP:
		map(now->with, 0x1000, PROT_READ | PROT_WRITE);
		words(now->with, 512, LOW);
		break;
	case CODE: code(now->with, PROT_READ | PROT_EXEC); break;
	case REG: uc->uc_mcontext.gregs[now->with] = now->with == REG_RAX ? LOW : now->with == REG_RCX ? 1 : now->with == REG_RSP ? SP : G; break;
	case REG0: uc->uc_mcontext.gregs[now->with] = 0; break;
	case SEG: uc->uc_mcontext.gregs[REG_RAX] = SS; break;
	case MEM: *(long *)G = now->with < 0 ? 0x1f80 : LOW | now->with << 32; break;
	case GROW:
		CHECK(ftruncate(file, 0x2000) == 0);
		words(BUS, 512, LOW);
		break;
	case FLAGS: uc->uc_mcontext.gregs[REG_EFL] &= ~0x40000L; break;
	case FPU:
		uc->uc_mcontext.fpregs->cwd |= 0x3f;
		uc->uc_mcontext.fpregs->mxcsr |= 0x1f80;
		break;
	case HOLE: CHECK(mprotect(hole, sizeof hole, PROT_READ | PROT_WRITE) == 0); break;
	default: break;
	}
}

__attribute__((used)) void on_fault(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;
	greg_t *r = uc->uc_mcontext.gregs;
	if (++signals > 10) {
		write(1, text, used > 4000 ? 4000 : used);
		say("%s: endless", now->name);
		_exit(97);
	}
	if (sig != SIGTRAP || !strcmp(now->name, "int1_inner")) {
		CHECK(h_push(signals) == signals + 1);
		in_handler++;
	}
	note("%s %s: signal %d %d code %d addr %lx rest %lx\n at", now->name, modes[mode], sig, si->si_signo, si->si_code, (long)si->si_addr, sum(si, sizeof *si));
	for (int i = 0; i < NGREG; i++)
		note(" %llx", r[i]);
	note("\n with");
	note_fpu((void *)uc->uc_mcontext.fpregs);
	note(" mask %lx alt %lx %d on %d link %p", uc->uc_sigmask.__val[0], (long)uc->uc_stack.ss_sp, uc->uc_stack.ss_flags,
	     (char *)&uc >= alt && (char *)&uc < alt + sizeof alt, (void *)uc->uc_link);
	note_memory();
	if (mode == JUMP)
		siglongjmp(back, 1);
	if (mode == MEND && signals == 1 && now->mend != LEAVE) {
		mend(uc);
		now->runs += (char *)r[REG_RIP] == now->at;
	} else {
		r[REG_RIP] = (greg_t)f_end;
	}
}

static int able(enum need need)
{
	unsigned a = 7, b = 0, c = 0, d;
	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return need == ALWAYS || (need == AVX2 && b & 1 << 5) || (need == UMIP && c & 1 << 2) || (need == FSGSBASE && b & 1);
}

// resumes tells whether the kernel lets a program go on whose stack pointer is not canonical. Without hardware
// virtualization there are hypervisors where it can't: what is resumed so faults, whoever had stopped it.
static int resumes(void)
{
	static int known = -1;
	int status;
	if (known >= 0)
		return known;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		for (int sig = 1; sig < 32; sig++)
			signal(sig, SIG_DFL);
		asm volatile("mov %0,%%rsp\nsyscall\nmov $60,%%eax\nxor %%edi,%%edi\nsyscall" ::"r"(NC), "a"(39L) : "rcx", "r11", "rdi", "memory");
	}
	CHECK(waitpid(child, &status, 0) == child);
	return known = WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// usable tells whether the case's stack can hold a handler's frame.
static int usable(const struct test *t) { return !t->how.rsp && t->how.flags != AC; }

static void run(struct test *t)
{
	struct how *h = &t->how;
	struct regs r = { 0x1111111111111111, 0x2222222222222222, 0x33, 0x44, 0x5555, 0x6666, SP + 0x800, SP, 8, 9, 10, 11, 12, 13, 14, 15, 0x202, t->start };
	long *from = &h->rax, *to = &r.rax;
	now = t;
	for (int i = 0; i < 8; i++)
		if (from[i])
			to[i] = from[i];
	if (!strncmp(t->name, "div_z", 5))
		r.rcx = r.rdx = 0;
	r.flags = h->flags ? h->flags : r.flags;
	memset(&fpu_in, 0, sizeof fpu_in);
	fpu_in.cwd = h->cw ? h->cw : 0x37f;
	fpu_in.mxcsr = h->mxcsr ? h->mxcsr : 0x1f80;
	memcpy(fpu_in.xmm, (float[]){ 1, 2, 3, 4 }, 16);
	memset(fpu_in.xmm + 32, 0xff, 16);
	memcpy(fpu_in.xmm + 48, (int[]){ 0, 1, 0xbc00, 3 }, 16);
	memcpy(fpu_in.xmm + 64, (double[]){ -1, -2 }, 16);
	reset(h);
	in = r;
	memset(&out, 0, sizeof out);
	signals = 0;
	t->runs++;
	if (sigsetjmp(back, 1) == 0) {
		enter();
		note("%s %s: end", t->name, modes[mode]);
		for (int i = 0; i < 17; i++)
			note(" %lx", (&out.rax)[i]);
		note(" and");
		note_fpu(&fpu_out);
		note_memory();
	} else {
		asm volatile("push $2\npopf\nfxrstor64 fpu_host(%%rip)" ::: "memory", "cc");
	}
	for (int done = 0, n; !quiet && done < used; done += n)
		if ((n = write(1, text + done, used - done)) <= 0)
			_exit(99);
	used = 0;
}

static void all(const char *only)
{
	for (size_t i = 0; i < NTESTS; i++) {
		if (strcmp(only, tests[i].name) && (*only || !strcmp("int1_inner", tests[i].name)))
			continue;
		tests[i].runs = 0;
		if (tests[i].how.rsp == NC && !resumes())
			continue;
		for (mode = 0; mode < MODES && able(tests[i].how.need); mode++) {
			stack_t s = { alt, mode == STACK ? SS_DISABLE : 0, sizeof alt };
			if ((mode == MEND && tests[i].mend == LEAVE) || (mode == STACK && !usable(&tests[i])))
				continue;
			CHECK(sigaltstack(&s, NULL) == 0);
			run(&tests[i]);
		}
	}
}

static void list(void)
{
	quiet = 1;
	in_handler = 0;
	all("");
	quiet = 0;
	for (size_t i = 0; i < NTESTS; i++)
		if (tests[i].runs)
			say("label f_%s %d", tests[i].name, tests[i].runs);
	for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
		say("label %s %ld", inner[i], in_handler);
}

// Breakpoints of the program's own.
void own_int3(void), own_cd03(void);
static int traps;
asm(".globl own_int3,own_cd03\n.type own_int3,@function\n.type own_cd03,@function\n"
    "own_int3:\nint3\nret\n.size own_int3,.-own_int3\nown_cd03:\n.byte 0xcd,3\nret\n.size own_cd03,.-own_cd03\n");

static void on_trap(int sig) { traps++; }

static void breakpoints(void)
{
	struct sigaction old, sa = { .sa_handler = on_trap };
	CHECK(sigaction(SIGTRAP, &sa, &old) == 0);
	own_int3();
	own_cd03();
	CHECK(sigaction(SIGTRAP, &old, NULL) == 0);
	say("traps %d", traps);
}

// The code that was mapped at the start. Whatever a signal interrupts is there, or where a case
// has jumped to.
static struct { long from, to; } mapped[64];
static int nmapped;

static void note_code(void)
{
	char line[512], x;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %*c%*c%c", &mapped[nmapped].from, &mapped[nmapped].to, &x) == 3 && x == 'x' && nmapped < 63)
			nmapped++;
	fclose(f);
}

__attribute__((used)) void on_user(int sig, siginfo_t *si, void *ctx)
{
	greg_t *r = ((ucontext_t *)ctx)->uc_mcontext.gregs;
	int known = r[REG_RIP] == NC || r[REG_RIP] == 0 || (r[REG_RIP] >= G && r[REG_RIP] < G + 0x100000);
	for (int i = 0; i < nmapped; i++)
		known |= r[REG_RIP] >= mapped[i].from && r[REG_RIP] < mapped[i].to;
	CHECK(known);
	CHECK(!(r[REG_EFL] & 0x100));
	users++;
}

int main(void)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	char line[64];
	struct sigaction sa = { .sa_sigaction = (void (*)(int, siginfo_t *, void *))fault_entry, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
		CHECK(sigaction(sigs[i], &sa, NULL) == 0);
	struct sigaction user = { .sa_sigaction = user_entry, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	CHECK(sigaction(SIGUSR1, &user, NULL) == 0);
	CHECK((file = memfd_create("short", 0)) >= 0);
	code(LOW & ~0xfffL, PROT_READ | PROT_EXEC);
	note_code();
	say("ready");
	while (hear(line, sizeof line)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "list"))
			list();
		else if (!strncmp(line, "run", 3))
			all(line + 3 + (line[3] == ' '));
		else if (!strcmp(line, "breakpoints"))
			breakpoints();
		else if (!strcmp(line, "resumes"))
			say("resumes %d", resumes());
		else if (!strcmp(line, "users"))
			say("users %ld", users);
		for (size_t i = 0; i < NTESTS && !strncmp(line, "die ", 4); i++)
			if (!strcmp(tests[i].name, line + 4)) {
				stack_t s = { .ss_flags = SS_DISABLE };
				CHECK(sigaltstack(&s, NULL) == 0);
				for (size_t k = 0; k < sizeof sigs / sizeof *sigs; k++)
					signal(sigs[k], SIG_DFL);
				quiet = 1;
				run(&tests[i]);
			}
		say("did");
	}
	return verdict();
}

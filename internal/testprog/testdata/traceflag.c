// A program that single-steps itself: tf_block sets the trap flag, runs instructions of all
// kinds, and clears it; the handler of SIGTRAP records what it is told. "run" prints the record,
// "threads N M" has N threads run the block M times each and compare their records with the
// first one, "plain N M" does it without the trap flag. With the argument "ignored" SIGTRAP is
// ignored, so that the first trap kills the program; with "leaf" the handler calls tf_leaf. "leaves" says how many
// instructions the block leaves out on this machine.
#include "prog.h"
#include <stddef.h>
#include <sys/syscall.h>
#include <ucontext.h>

struct step { long rip, flags, code, addr, trapno, err, rsp; };
enum { MAX = 400, RESULTS = 24 };
struct record { int n, users, faults, ints; long rsp, out[RESULTS]; struct step steps[MAX]; };

static __thread struct record *now;
static int leaf_in_handler;
extern char tf_block[], tf_end[], tf_after_cpuid[];
void tf_run(long *out, long flag, long able, long pid), tf_leaf(void);

// What this machine can: 32-bit system calls, and a step that ends behind cpuid. Where a hypervisor emulates cpuid there
// may be none, with a tracer and without: one step is that and the next instruction.
enum { INT80 = 1, CPUID = 2 };
static long able;

// tf_block(rdi: results, rsi: the flag to set, TF or 0, rdx: able, rcx: PID).
// Results that depend on where things are loaded are made relative.
asm(".text\n.globl tf_block,tf_end,tf_run,tf_leaf,tf_after_cpuid\n.type tf_block,@function\ntf_run:\ntf_block:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\n"
    "mov %rdi,%rbx\nmov %rsi,%r12\nmov %rdx,%r13\nmov %rcx,%r14\nmov %rsp,%rbp\n"
    "pushf\nor %r12,(%rsp)\npopf\n" // set here
    "nop\nmov $77,%eax\nadd $5,%rax\nsub $77,%rax\nmov %rax,(%rbx)\nxchg %ax,%ax\nlock incq (%rbx)\n"
    "push %rax\npushf\npop 8(%rbx)\npop %rdx\npushfw\npopw 8(%rbx)\n" // the program's own flag is pushed
    "lea tf_leaf(%rip),%rsi\nmov tf_word(%rip),%rax\nadd %rax,(%rbx)\naddl $0,tf_word(%rip)\norl $1,tf_word(%rip)\n"
    // calls
    "call tf_leaf\ncall *%rsi\nmov %rsi,16(%rbx)\ncall *16(%rbx)\npush 16(%rbx)\ncall *(%rsp)\npop %rax\ncall *tf_leaf_at(%rip)\n"
    "push $7\ncall tf_leaf8\ndata16 rex.w call tf_leaf\nnotrack call *%rsi\nbnd call tf_leaf\n"
    // jumps
    "jmp 1f\nud2\n1:\n.byte 0xe9\n.long 0\n"
    "xor %ecx,%ecx\njrcxz 2f\nud2\n2:\nmov $3,%ecx\njrcxz 1b\n3:\nloop 3b\n"
    "mov $2,%ecx\n4:\ncmp $9,%ecx\nloopne 4b\ncmp %ecx,%ecx\nje 5f\nud2\n5:\njne 5b\n.byte 0x0f,0x84\n.long 0\n"
    "lea 6f(%rip),%rdx\njmp *%rdx\nud2\n6:\nlea 7f(%rip),%rdx\nmov %rdx,16(%rbx)\njmp *16(%rbx)\nud2\n"
    "7:\nlea 8f(%rip),%rdx\npush %rdx\nret\nud2\n8:\nlea 9f(%rip),%rdx\npush %rdx\nnotrack jmp *(%rsp)\n9:\npop %rdx\n"
    // strings
    "lea 64(%rbx),%rsi\nlea 96(%rbx),%rdi\nmov $4,%ecx\nrep movsb\nrep movsb\nmovsq\nmov $3,%ecx\nxor %eax,%eax\nrep stosw\n"
    "mov $5,%ecx\nrepne scasb\nstd\nlodsb\ncld\n"
    // flags
    "pushf\npopf\npushfw\npopfw\ncmp %eax,%eax\nlahf\nsahf\nstc\nadc $0,%eax\nmov %ss,%eax\nmov %eax,%ss\nnop\n"
    "mov %rsp,%rdx\nmov %ss,%eax\npush %rax\npush %rdx\npushf\nmov %cs,%eax\npush %rax\nlea 1f(%rip),%rax\npush %rax\niretq\nud2\n1:\n"
    "mov %cs,%eax\npush %rax\nlea 1f(%rip),%rax\npush %rax\nlretq\nud2\n1:\n"
    // the processor, vectors, the kernel
    "enter $16,$0\nleave\nmov %rbx,%rsi\nxor %eax,%eax\nxor %ecx,%ecx\ntest $2,%r13b\njz 1f\ncpuid\ntf_after_cpuid:\n1:\nmov %rsi,%rbx\nrdtsc\nxor %eax,%eax\nxor %edx,%edx\nendbr64\n"
    "movdqu (%rbx),%xmm0\npaddd %xmm0,%xmm0\nmovdqu tf_word(%rip),%xmm1\nfld1\nfstp %st(0)\n"
    "mov $39,%eax\nsyscall\nsub %r14,%rax\nmov %rax,24(%rbx)\nmov %r11,32(%rbx)\nlea tf_block(%rip),%rax\nsub %rax,%rcx\nmov %rcx,40(%rbx)\n" // getpid
    "mov $62,%eax\nmov %r14,%rdi\nxor %esi,%esi\nsyscall\nmov %rax,48(%rbx)\n" // kill(pid, 0)
    "mov $186,%eax\nsyscall\nmov %rax,%rsi\nmov $10,%edx\nmov %r14,%rdi\nmov $234,%eax\nsyscall\nmov %rax,56(%rbx)\n" // tgkill SIGUSR1
    "test $1,%r13b\njz 1f\nmov $20,%eax\nint $0x80\nsub %r14,%rax\nmov %rax,128(%rbx)\n1:\n"
    "ud2\nmov 8,%eax\nint $0x20\n" // the handlers go on behind those
    "xor %ecx,%ecx\ndiv %ecx\n"
    "pushf\nnot %r12\nand %r12,(%rsp)\nnot %r12\npopf\n" // cleared here
    "nop\npushf\npop 136(%rbx)\nadd %eax,%eax\ncall tf_leaf\n"
    "mov %rbp,%rsp\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
    "tf_leaf:\nendbr64\nincl 144(%rbx)\nret\ntf_leaf8:\nret $8\n"
    "tf_end:\n.size tf_block,.-tf_block\n"
    ".data\ntf_word:\n.quad 3,4\ntf_leaf_at:\n.quad tf_leaf\n.text\n");

// repeats tells of a string instruction with a prefix. If it faults for a page that the kernel has moved meanwhile, its
// traps have RF set from then on until its last repetition: not the program's doing, nor a tracer's.
static int repeats(const unsigned char *insn)
{
	int prefix = 0;
	for (; *insn == 0x66 || (*insn & 0xfe) == 0xf2 || (*insn & 0xf0) == 0x40; insn++)
		prefix |= (*insn & 0xfe) == 0xf2;
	return prefix && *insn >= 0xa4 && *insn <= 0xaf;
}

// The code without breakpoints.
static unsigned char own[4096];

__attribute__((constructor)) static void copy_own(void) { memcpy(own, tf_block, tf_end - tf_block); }

static int repeats_at(long rip)
{
	long at = rip - (long)tf_block;
	return at >= 0 && at < tf_end - tf_block && repeats(own + at);
}

static void on_trap(int sig, siginfo_t *si, void *ctx)
{
	enum { RF = 0x10000 };
	ucontext_t *uc = ctx;
	greg_t *r = uc->uc_mcontext.gregs;
	long flags = r[REG_EFL] & ~(repeats_at(r[REG_RIP]) ? RF : 0);
	long where = (char *)si->si_addr >= tf_block && (char *)si->si_addr < tf_end ? (char *)si->si_addr - tf_block : (long)si->si_addr;
	struct step s = { r[REG_RIP] - (long)tf_block, flags, si->si_code, where, r[REG_TRAPNO], r[REG_ERR], r[REG_RSP] };
	if (now->n == 0)
		now->rsp = s.rsp;
	s.rsp -= now->rsp;
	CHECK(now->n < MAX);
	now->steps[now->n++ % MAX] = s;
	if (leaf_in_handler) {
		long scratch[RESULTS] = { 0 };
		asm volatile("mov %0,%%rbx\ncall tf_leaf" ::"r"(scratch) : "rbx", "memory");
		CHECK(scratch[18] == 1);
	}
}

// on_fault skips the instruction: all that fault here have two bytes, but the mov from address 8.
static void on_fault(int sig, siginfo_t *si, void *ctx)
{
	greg_t *r = ((ucontext_t *)ctx)->uc_mcontext.gregs;
	on_trap(sig, si, ctx);
	now->faults++;
	r[REG_RIP] += sig == SIGSEGV && si->si_addr == (void *)8 ? 7 : 2;
}

static void on_user(int sig) { now->users++; }

static void on_int80(int sig, siginfo_t *si, void *ctx)
{
	((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void catch(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static long int80_works(void)
{
	long got;
	catch(SIGSEGV, on_int80);
	asm volatile("int $0x80" : "=a"(got) : "a"(20L) : "r8", "r9", "r10", "r11", "memory");
	return got == getpid();
}

static struct record first, plain;

static void block(struct record *r, long flag)
{
	memset(r, 0, sizeof *r);
	now = r;
	tf_run(r->out, flag, able, getpid());
	r->rsp = r->out[2] = 0; // addresses
	CHECK(r->users == 1);
}

static int steps_at(const struct record *r, long rip)
{
	for (int i = 0; i < r->n; i++)
		if (r->steps[i].rip == rip)
			return 1;
	return 0;
}

static long rounds, flag;

// differ says where a record is not as the first one was.
static int differ(const struct record *r, const struct record *want)
{
	const long *a = (const long *)r, *b = (const long *)want;
	for (size_t i = 0; i < sizeof *r / 8; i++)
		if (a[i] != b[i]) {
			long step = ((long)i * 8 - (long)offsetof(struct record, steps)) / (long)sizeof(struct step);
			dprintf(2, "word %zu of the record, in step %ld: %lx, want %lx\n", i, step, a[i], b[i]);
			return 1;
		}
	return 0;
}

static void *repeat(void *arg)
{
	struct record r;
	for (long i = 0; i < rounds; i++) {
		block(&r, flag);
		CHECK(!differ(&r, flag ? &first : &plain));
	}
	return NULL;
}

static void threads(long n)
{
	pthread_t t[64];
	for (long i = 0; i < n; i++)
		t[i] = thread(repeat, i);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

int main(int argc, char **argv)
{
	char line[64];
	long n;
	able = (int80_works() ? INT80 : 0) | CPUID;
	catch(SIGTRAP, on_trap);
	catch(SIGSEGV, on_fault);
	catch(SIGILL, on_fault);
	catch(SIGFPE, on_fault);
	signal(SIGUSR1, on_user);
	block(&first, 0x100);
	if (!steps_at(&first, tf_after_cpuid - tf_block)) {
		able &= ~CPUID;
		block(&first, 0x100);
	}
	block(&plain, 0);
	leaf_in_handler = argc > 1 && !strcmp(argv[1], "leaf");
	if (argc > 1 && !strcmp(argv[1], "ignored"))
		signal(SIGTRAP, SIG_IGN);
	say("ready");
	while (hear(line, sizeof line)) {
		struct record r;
		if (!strcmp(line, "leaves\n"))
			say("leaves %d", (able & INT80 ? 0 : 4) + (able & CPUID ? 0 : 1));
		if (!strncmp(line, "run", 3)) {
			block(&r, 0x100);
			for (int i = 0; i < r.n; i++)
				say("step %lx flags %lx code %ld addr %lx trapno %ld err %lx rsp %ld", r.steps[i].rip, r.steps[i].flags,
				    r.steps[i].code, r.steps[i].addr, r.steps[i].trapno, r.steps[i].err, r.steps[i].rsp);
			for (int i = 0; i < RESULTS; i++)
				say("result %d %lx", i, r.out[i]);
			say("users %d faults %d", r.users, r.faults);
		} else if (sscanf(line, "threads %ld %ld", &n, &rounds) == 2 || sscanf(line, "plain %ld %ld", &n, &rounds) == 2) {
			flag = *line == 't' ? 0x100 : 0;
			threads(n);
		}
		say("did");
	}
	return verdict();
}

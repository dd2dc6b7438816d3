// Corner cases, one command each: "growth N" recurses N deep onto fresh stack;
// "pending N" calls foo N times with a SIGTRAP blocked and pending; "own N" runs N
// breakpoints of its own; "fault N" makes N faults in fault_at, which a handler mends.
#include "prog.h"
#include <ucontext.h>

static long traps, users, faults, good = 42;
extern char fault_insn[];
long grow(long n), fault_at(long *p);

REAL long foo(long v) { asm volatile("nopw 0x0(%rax,%rax,1)"); return 5 * v + 1; }
asm(".text\n.globl grow\n.type grow,@function\n"
    "grow:\n\ttest %rdi,%rdi\n\tje 1f\n\tdec %rdi\n\tcall grow\n1:\tret\n.size grow,.-grow\n"
    ".globl fault_at\n.type fault_at,@function\nfault_at:\n\tnop\n"
    ".globl fault_insn\nfault_insn:\n\tmov (%rdi),%rax\n\tret\n.size fault_at,.-fault_at\n");

static int in_text(void *uc)
{
	extern char __executable_start[], etext[];
	char *ip = (char *)((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
	return ip >= __executable_start && ip < etext;
}
static void on_trap(int s, siginfo_t *si, void *uc) { CHECK(in_text(uc)); ADD(traps, 1); }
static void on_user(int s, siginfo_t *si, void *uc) { CHECK(in_text(uc)); ADD(users, 1); }
static void on_segv(int s, siginfo_t *si, void *uc)
{
	greg_t *g = ((ucontext_t *)uc)->uc_mcontext.gregs;
	CHECK(g[REG_RIP] == (long)fault_insn && si->si_addr == (void *)8);
	ADD(faults, 1);
	g[REG_RDI] = (long)&good; // and the instruction runs again
}
static void catch(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(sig, &sa, NULL);
}
static void pending(long n)
{
	struct timespec now = { 0 };
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (long i = 0; i < n; i++) {
		raise(SIGTRAP);
		CHECK(foo(i) == 5 * i + 1);
		CHECK(sigtimedwait(&set, NULL, &now) == SIGTRAP);
	}
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int main(void)
{
	char line[64];
	long n;
	catch(SIGUSR1, on_user);
	catch(SIGSEGV, on_segv);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "growth %ld", &n) == 1) {
			grow(n);
		} else if (sscanf(line, "pending %ld", &n) == 1) {
			pending(n);
		} else if (sscanf(line, "own %ld", &n) == 1) {
			catch(SIGTRAP, on_trap);
			say("going");
			for (long i = 0; i < n; i++)
				asm volatile("int3" ::: "memory");
		} else if (sscanf(line, "fault %ld", &n) == 1) {
			for (long i = 0; i < n; i++)
				CHECK(fault_at((long *)8) == 42);
		}
		say("did traps %ld faults %ld users %ld", traps, faults, users);
	}
	return verdict();
}

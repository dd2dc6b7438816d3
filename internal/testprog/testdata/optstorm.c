// Functions with inner heads, and what may happen to a thread in them. Answers start with "did".
//
//	blocked N S    signal S is blocked: N calls of s_ret, N jumps to its ret, then S is blocked still
//	ignored N S    S is ignored, and is still
//	caught N S     S has a handler, and the thread blocks it; both are so afterwards
//	keep HOW S     S is blocked, ignored, caught or handled (caught, and not blocked) from now on
//	heads N        N jumps to s_ret's ret, with a check of what keep has done
//	guarded N      N calls of s_glob, whose first instruction faults; the handler looks at the registers
//	edge N         N calls of s_ret with the stack pointer at the end of the stack
//	brink          calls s_ret there until input comes
//	storm N        N rounds of all functions in each of 4 threads, which take signals all the time:
//	               handlers on alternate stacks, nested, left by siglongjmp, calling the functions
//	forks N        N children of each of 3 threads call the functions
#include "prog.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#define FN(name, body) \
	__asm__(".pushsection .text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
		body "\n.size " #name ",.-" #name "\n.popsection"); \
	long name(long)

FN(s_ret, "lea 1(%rdi),%rax; ret");
FN(s_push, "push %rbx; mov %rdi,%rbx; lea 1(%rbx),%rax; pop %rbx; ret");
FN(s_one, "push %rdi; pop %rax; inc %rax; ret");
FN(s_call, "push %rbx; call s_one; pop %rbx; ret");
FN(s_loop, "mov $3,%ecx; mov %rdi,%rax; 1: loop 1b; nop; nop; nop; inc %rax; ret");
FN(s_jump, "lea 1f(%rip),%rax; jmp *%rax; nop; 2: push %rcx; 1: mov %rdi,%rax; inc %rax; ret");
FN(s_glob, "mov s_data(%rip),%rax; lea 1(%rdi),%rax; ret");
char s_data[1 << 12] __attribute__((aligned(1 << 12)));
long call_glob(long v);
__asm__(".globl call_glob\ncall_glob: mov $0x1234567,%eax\ncall s_glob\nret\n");
long jump_to_ret(long v, long at), at_end(long v, long sp);
__asm__(".globl jump_to_ret,at_end\njump_to_ret: lea 1(%rdi),%rax\njmp *%rsi\n"
	"at_end: mov %rsp,%r8\nmov %rsi,%rsp\ncall s_ret\nmov %r8,%rsp\nret\n");

static long (*const all[])(long) = { s_ret, s_push, s_one, s_call, s_loop, s_jump };
extern char __executable_start[], etext[];
static long rounds, depth, taken;
static __thread sigjmp_buf back;
static __thread volatile int may_leave;

static int waiting(void)
{
	struct pollfd in = { 0, POLLIN, 0 };
	return poll(&in, 1, 0) > 0;
}

static void ignore(int sig) {}

static void is_blocked(int sig)
{
	sigset_t s;
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &s) == 0 && sigismember(&s, sig));
}

static void block(int how, int sig)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, sig);
	CHECK(pthread_sigmask(how, &s, NULL) == 0);
}

static void disposed(const char *how, long n, int sig)
{
	struct sigaction sa = { .sa_handler = *how == 'i' ? SIG_IGN : *how == 'c' ? ignore : SIG_DFL }, now;
	CHECK(sigaction(sig, &sa, NULL) == 0);
	if (*how != 'i')
		block(SIG_BLOCK, sig);
	for (long i = 0; i < n; i++) {
		CHECK(s_ret(i) == i + 1);
		CHECK(jump_to_ret(i, (long)s_ret + 4) == i + 1);
		if (*how != 'i')
			is_blocked(sig);
	}
	CHECK(sigaction(sig, NULL, &now) == 0 && now.sa_handler == sa.sa_handler);
	if (*how != 'i')
		block(SIG_UNBLOCK, sig);
	say("did");
}

static char kept;
static int kept_sig;

static void keep(const char *how, int sig)
{
	struct sigaction sa = { .sa_handler = *how == 'i' ? SIG_IGN : *how == 'b' ? SIG_DFL : ignore };
	kept = *how, kept_sig = sig;
	CHECK(sigaction(sig, &sa, NULL) == 0);
	block(kept == 'b' || kept == 'c' ? SIG_BLOCK : SIG_UNBLOCK, sig);
}

static void is_kept(void)
{
	struct sigaction now;
	sigset_t s;
	CHECK(sigaction(kept_sig, NULL, &now) == 0);
	CHECK(kept == 'b' || now.sa_handler == (kept == 'i' ? SIG_IGN : ignore)); // the default one may be a guard
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &s) == 0 && sigismember(&s, kept_sig) == (kept == 'b' || kept == 'c'));
}

static void on_guarded(int sig, siginfo_t *si, void *ctx)
{
	greg_t *r = ((ucontext_t *)ctx)->uc_mcontext.gregs;
	CHECK(r[REG_RIP] == (long)s_glob && r[REG_RAX] == 0x1234567 && si->si_addr == s_data);
	CHECK(mprotect(s_data, sizeof s_data, PROT_READ) == 0);
}

static void guarded(long n)
{
	struct sigaction sa = { .sa_sigaction = on_guarded, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	for (long i = 0; i < n; i++) {
		CHECK(mprotect(s_data, sizeof s_data, PROT_NONE) == 0);
		CHECK(call_glob(i) == i + 1);
	}
	say("did");
}

static long edge(void)
{
	char *m = mmap(NULL, 3 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m != MAP_FAILED && mprotect(m, 1 << 12, PROT_NONE) == 0);
	return (long)m + (1 << 12) + 8;
}

static void call_all(long i)
{
	for (unsigned f = 0; f < sizeof all / sizeof *all; f++)
		CHECK(all[f](i) == i + 1);
}

static void on_alarm(int sig, siginfo_t *si, void *ctx)
{
	char *rip = (char *)((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
	CHECK(rip >= __executable_start && rip < etext || (long)rip >> 41 == 0x7f >> 1); // a library's: 0x7e… or 0x7f…
	long n = ADD(taken, 1), level = ADD(depth, 1);
	if (level < 20)
		call_all(n);
	if (n % 5 == 0)
		pthread_kill(pthread_self(), SIGUSR2);
	ADD(depth, -1);
	if (n % 3 == 0 && may_leave) {
		may_leave = 0; // the next signal comes in siglongjmp, on this stack
		siglongjmp(back, 1);
	}
}

static void on_user(int sig) { call_all(sig); }

static long turns[4]; // of each thread

static void *storms(void *arg)
{
	static __thread char stack[1 << 16];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof stack };
	CHECK(sigaltstack(&ss, NULL) == 0);
	for (volatile long i = 0; i < rounds; i++, ADD(turns[(long)arg], 1))
		if (sigsetjmp(back, 1) == 0) {
			may_leave = 1;
			call_all(i);
			may_leave = 0;
		} else
			may_leave = 0;
	ss.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&ss, NULL) == 0);
	return NULL;
}

static void storm(void)
{
	struct sigaction sa = { .sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	struct sigaction user = { .sa_handler = on_user, .sa_flags = SA_NODEFER | SA_ONSTACK | SA_RESTART };
	pthread_t t[4];
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0 && sigaction(SIGUSR2, &user, NULL) == 0);
	for (int i = 0; i < 4; i++)
		t[i] = thread(storms, i);
	for (int i = 0; i < 4; i++) {
		while (pthread_tryjoin_np(t[i], NULL) == EBUSY) {
			long was = ADD(turns[i], 0);
			pthread_kill(t[i], SIGUSR1);
			usleep(300);
			// Where handlers take longer than that, the thread would do nothing else.
			for (int k = 0; k < 100 && ADD(turns[i], 0) == was; k++)
				usleep(300);
		}
	}
	say("did %ld", taken);
}

static void *forks(void *arg)
{
	for (long i = 0; i < rounds; i++) {
		int status;
		pid_t pid = i % 4 == 3 ? vfork() : fork();
		if (pid == 0) {
			long bad = 0;
			for (unsigned f = 0; f < sizeof all / sizeof *all; f++)
				bad |= all[f](i) != i + 1;
			bad |= jump_to_ret(i, (long)s_ret + 4) != i + 1;
			_exit(bad);
		}
		call_all(i);
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
	return NULL;
}

int main(void)
{
	char line[64], how[16];
	long n, sig;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "edge %ld", &n) == 1) {
			long sp = edge();
			for (long i = 0; i < n; i++)
				CHECK(at_end(i, sp + 8 * (i % 64)) == i + 1);
			say("did");
		} else if (sscanf(line, "keep %15s %ld", how, &sig) == 2) {
			keep(how, sig);
			say("did");
		} else if (sscanf(line, "guarded %ld", &n) == 1) {
			guarded(n);
		} else if (sscanf(line, "heads %ld", &n) == 1) {
			for (long i = 0; i < n; i++) {
				CHECK(jump_to_ret(i, (long)s_ret + 4) == i + 1);
				is_kept();
			}
			say("did");
		} else if (!strncmp(line, "brink", 5)) {
			long sp = edge();
			while (!waiting())
				for (long i = 0; i < 200; i++)
					CHECK(at_end(i, sp) == i + 1);
			say("did");
		} else if (sscanf(line, "storm %ld", &rounds) == 1) {
			storm();
		} else if (sscanf(line, "forks %ld", &rounds) == 1) {
			pthread_t t[3];
			for (int i = 0; i < 3; i++)
				t[i] = thread(forks, i);
			for (int i = 0; i < 3; i++)
				pthread_join(t[i], NULL);
			say("did");
		} else if (sscanf(line, "%15s %ld %ld", how, &n, &sig) == 3) {
			disposed(how, n, sig);
		} else if (line[0] == 'h') {
			say("did");
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

// A program made of system calls; see blocking.h for those that block. Commands, each answered
// by lines that are the same every time and then "did":
//   processes  children by fork, vfork, posix_spawn, system, clone and clone3; threads
//   interrupt  every blocking call, interrupted by a handler with and without SA_RESTART
//   signals N  N signals to itself, handled
//   same N     8 threads blocked in read(2) at raw_site while 4 others make N calls there each
//   facts      what a raw system call leaves in the registers, by all three instructions
//   raw N      N calls at raw_site; one N: the same call of number N at raw_site, and its result
//   block      threads blocked in calls at libc's sites and at raw_site; wake: they are ended
//   expire N   calls with timeouts of N milliseconds, which end them
//   expiring N the same, to be stopped until cut is 2: those that this ends have no such timeout; expired: their results
//   dispatch   a call that a seccomp filter answers with SIGSYS
//   only       calls from other places than raw_call are answered with SIGSYS for a while
//   exec       the program executes itself; leave N: exit_group with status N
#include "prog.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include "blocking.h"

extern char **environ;
extern char raw_site[], raw_other[], raw_int80[], raw_sysenter[];
struct call { long rax, rdi, rsi, rdx, r10, r8, r9, rcx, r11, flags, others; };

// raw_call(struct call *): one system call at raw_site; what it left is stored. others is the sum
// of the registers that no call may change.
#define ENTRY(name, site, insn) \
	".globl " name "," site "\n.type " name ",@function\n.type " site ",@function\n" name ":\n" \
	"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n" \
	"mov %rdi,%r15\nmov $1,%ebx\nmov $2,%ebp\nmov $4,%r12d\nmov $8,%r13d\nmov $16,%r14d\nmov $0x77,%ecx\n" \
	"mov (%r15),%rax\nmov 16(%r15),%rsi\nmov 24(%r15),%rdx\nmov 32(%r15),%r10\nmov 40(%r15),%r8\nmov 48(%r15),%r9\nmov 8(%r15),%rdi\n" \
	"pushf\npop 72(%r15)\n" \
	site ":\n" insn "\n.size " site ",.-" site "\n" site "_after:\n" \
	"mov %rax,(%r15)\nmov %rdi,8(%r15)\nmov %rsi,16(%r15)\nmov %rdx,24(%r15)\nmov %r10,32(%r15)\nmov %r8,40(%r15)\nmov %r9,48(%r15)\n" \
	"mov %rcx,56(%r15)\nmov %r11,64(%r15)\nlea (%rbx,%rbp),%rcx\nadd %r12,%rcx\nadd %r13,%rcx\nadd %r14,%rcx\nmov %rcx,80(%r15)\n" \
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
asm(".text\n" ENTRY("raw_call", "raw_site", "syscall") ENTRY("int80_call", "raw_int80", "int $0x80") ENTRY("sysenter_call", "raw_sysenter", "sysenter") ENTRY("other_call", "raw_other", "syscall"));
extern char raw_site_after[];
void raw_call(struct call *), other_call(struct call *), int80_call(struct call *), sysenter_call(struct call *);

static long raw(long nr, long a, long b, long c)
{
	struct call k = { .rax = nr, .rdi = a, .rsi = b, .rdx = c, .r10 = 5, .r8 = 6, .r9 = 7 };
	raw_call(&k);
	CHECK(k.rcx == (long)raw_site_after);
	CHECK(k.r11 == k.flags);
	CHECK(k.rdi == a && k.rsi == b && k.rdx == c && k.r10 == 5 && k.r8 == 6 && k.r9 == 7 && k.others == 31);
	return k.rax;
}

static long status_of(pid_t pid)
{
	int status = 0;
	CHECK(pid > 0 && waitpid(pid, &status, __WALL) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int cloned(void *arg) { return (long)arg; }

static void *nothing(void *arg) { return arg; }
static void *leaves(void *arg) { syscall(SYS_exit, 0); return arg; }

static void processes(void)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	char *args[] = { "callsites", "exit", "7", NULL };
	int fds[2];
	char c = 0;
	pid_t pid = fork();
	if (pid == 0)
		_exit(getppid() > 0 ? 41 : 1);
	say("fork %ld", status_of(pid));
	if ((pid = vfork()) == 0)
		_exit(42);
	say("vfork %ld", status_of(pid));
	if ((pid = vfork()) == 0) {
		execv("/proc/self/exe", args);
		_exit(1);
	}
	say("vfork exec %ld", status_of(pid));
	if ((pid = vfork()) == 0) {
		execv("/nowhere", args);
		_exit(errno);
	}
	say("vfork no exec %ld", status_of(pid));
	CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) == 0);
	say("spawn %ld none %d", status_of(pid), posix_spawn(&pid, "/nowhere", NULL, NULL, args, environ));
	say("system %d", WEXITSTATUS(system("exit 3")));
	say("clone vm %ld", status_of(clone(cloned, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)43)));
	say("clone vfork %ld", status_of(clone(cloned, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)44)));
	struct clone_args a = { .exit_signal = SIGCHLD };
	if ((pid = syscall(SYS_clone3, &a, sizeof a)) == 0)
		_exit(45);
	say("clone3 %ld", status_of(pid));
	if ((pid = raw(SYS_fork, 0, 0, 0)) == 0)
		raw(SYS_exit_group, 46, 0, 0);
	say("raw fork %ld", status_of(pid));
	CHECK(pipe(fds) == 0);
	if ((pid = fork()) == 0) { // a child that makes threads and children itself
		pthread_join(thread(nothing, 0), NULL);
		CHECK(write(fds[1], "x", 1) == 1);
		if (fork() == 0)
			_exit(0);
		kill(getpid(), SIGKILL);
	}
	CHECK(read(fds[0], &c, 1) == 1 && c == 'x');
	say("killed %ld", status_of(pid));
	close(fds[0]), close(fds[1]);
	for (long i = 0; i < 40; i++) {
		void *got;
		pthread_t t = thread(i % 2 ? nothing : leaves, i);
		CHECK(pthread_join(t, &got) == 0 && (i % 2 == 0 || got == (void *)i));
	}
	say("threads");
}

static long handled;
static void on_user(int sig) { ADD(handled, 1); }

static void handle(int flags)
{
	struct sigaction sa = { .sa_handler = on_user, .sa_flags = flags };
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
}

// interrupt has each call interrupted once it blocks, and then ended.
static void interrupt(void)
{
	for (size_t i = 0; i < NBLOCKING; i++)
		for (int restart = 0; restart < 2; restart++) {
			struct blocker b = { .call = &blocking[i] };
			long before = GET(handled), again;
			handle(restart ? SA_RESTART : 0);
			start_blocker(&b);
			in_call(&b);
			CHECK(syscall(SYS_tgkill, getpid(), b.tid, SIGUSR1) == 0);
			while (GET(handled) == before)
				sched_yield();
			again = in_call(&b);
			end_blocker(&b);
			say("%s %s: %ld errno %d again %ld", blocking[i].name, restart ? "restart" : "plain", b.result, b.err, again);
		}
	handle(SA_RESTART);
}

static void signals(long n)
{
	long before = handled;
	for (long i = 0; i < n; i++)
		CHECK(raise(SIGUSR1) == 0);
	say("handled %ld", handled - before);
}

static int line_in[2];
static long calls, reading;
static void *reads(void *arg)
{
	char c = 0;
	ADD(reading, 1);
	CHECK(raw(SYS_read, line_in[0], (long)&c, 1) == 1 && c == 'x');
	return NULL;
}
static void *calls_on(void *arg)
{
	for (long i = 0; i < calls; i++)
		CHECK(raw(SYS_getpid, i, 2, 3) == getpid());
	return NULL;
}

static void same(long n)
{
	pthread_t r[8], c[4];
	calls = n;
	CHECK(pipe(line_in) == 0);
	for (int i = 0; i < 8; i++)
		r[i] = thread(reads, i);
	for (int i = 0; i < 4; i++)
		c[i] = thread(calls_on, i);
	for (int i = 0; i < 4; i++)
		pthread_join(c[i], NULL);
	CHECK(write(line_in[1], "xxxxxxxx", 8) == 8);
	for (int i = 0; i < 8; i++)
		pthread_join(r[i], NULL);
	close(line_in[0]), close(line_in[1]);
}

static void raws(long n)
{
	int fds[2];
	struct timespec t = { 0, 1 };
	char c;
	CHECK(pipe(fds) == 0);
	for (long i = 0; i < n; i++)
		switch (i % 5) {
		case 0: CHECK(raw(SYS_getpid, 1, 2, 3) == getpid()); break;
		case 1: CHECK(raw(SYS_write, fds[1], (long)"y", 1) == 1); break;
		case 2: CHECK(raw(SYS_read, fds[0], (long)&c, 1) == 1); break;
		case 3: CHECK(raw(SYS_nanosleep, (long)&t, 0, 0) == 0); break;
		case 4: CHECK(raw(1000, 0, 0, 0) == -ENOSYS); break;
		}
	close(fds[0]), close(fds[1]);
}

static sigjmp_buf back;
static siginfo_t told;
static long told_ip;
static void *escape[5]; // siglongjmp makes a system call
static void on_fault(int sig, siginfo_t *si, void *ctx)
{
	told = *si;
	told_ip = ((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
	if (told.si_signo == SIGSYS && told.si_code == 2)
		__builtin_longjmp(escape, 1);
	siglongjmp(back, 1);
}

// fact makes getpid by one of the instructions, whatever that does here.
static void fact(const char *name, void (*f)(struct call *), char *site, long nr)
{
	struct call k = { .rax = nr, .rdi = 2, .rsi = 3, .rdx = 4, .r10 = 5, .r8 = 6, .r9 = 7 };
	if (sigsetjmp(back, 1))
		say("%s signal %d code %d addr at %d ip at %d", name, told.si_signo, told.si_code, (char *)told.si_addr == site, told_ip == (long)site);
	else {
		f(&k);
		say("%s right %d args %ld %ld %ld %ld %ld %ld rcx %lx r11 %lx flags %lx others %ld", name, k.rax == getpid(), k.rdi, k.rsi, k.rdx,
		    k.r10, k.r8, k.r9, k.rcx == (long)raw_site_after ? -1 : k.rcx, k.r11, k.flags, k.others);
	}
}

static void facts(void)
{
	static char stack[64 << 10]; // sysenter loses the other
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof stack };
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };
	CHECK(sigaltstack(&alt, NULL) == 0);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	fact("syscall", raw_call, raw_site, SYS_getpid);
	fact("int80", int80_call, raw_int80, 20);
	fact("sysenter", sysenter_call, raw_sysenter, 20);
	signal(SIGSEGV, SIG_DFL);
}

// dispatch has a filter raise SIGSYS for call number 1000.
static void dispatch(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1000, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 77),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 4, f };
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	sigaction(SIGSYS, &sa, NULL);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
	if (sigsetjmp(back, 1) == 0)
		say("returned %ld", raw(1000, 2, 3, 4));
	else
		say("sigsys %d code %d errno %d call %d at %ld arch %x ip at %ld", told.si_signo, told.si_code, told.si_errno, told.si_syscall,
		    (long)told.si_call_addr - (long)raw_site, told.si_arch, told_ip - (long)raw_site);
}

// only has the kernel answer with SIGSYS all calls but those that raw_call makes, while it is on.
static void only(void)
{
	static char selector = SYSCALL_DISPATCH_FILTER_ALLOW;
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	struct call k = { .rax = SYS_getpid };
	int caught = 0;
	long got = -1;
	sigaction(SIGSYS, &sa, NULL);
	CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, raw_call, raw_site_after + 2 - (char *)raw_call, &selector) == 0);
	selector = SYSCALL_DISPATCH_FILTER_BLOCK;
	if (__builtin_setjmp(escape) == 0)
		got = raw(SYS_getpid, 2, 3, 4);
	if (__builtin_setjmp(escape) == 0)
		other_call(&k);
	else
		caught = 1;
	selector = SYSCALL_DISPATCH_FILTER_ALLOW;
	CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0) == 0);
	say("allowed %d dispatched %d code %d call %d at %ld ip at %ld", GET(got) == getpid(), caught, told.si_code, told.si_syscall,
	    (long)told.si_call_addr - (long)raw_other, told_ip - (long)raw_other);
}

static struct blocker blocked[NBLOCKING];
static int parked[2];
static void *parks(void *arg) // a parent that waits for its vfork child
{
	char c;
	pid_t pid = vfork();
	if (pid == 0 && ADD(reading, 1))
		_exit(raw(SYS_read, parked[0], (long)&c, 1) == 1 ? 9 : 8);
	CHECK(status_of(pid) == 9);
	return NULL;
}

static void block(pthread_t *t)
{
	CHECK(pipe(line_in) == 0 && pipe(parked) == 0);
	SET(reading, 0);
	for (int i = 0; i < 4; i++)
		t[i] = thread(i ? reads : parks, i);
	while (GET(reading) < 4) // they tell it before the call, so a hit may be under way
		sched_yield();
	for (size_t i = 0; i < NBLOCKING; i++) {
		blocked[i] = (struct blocker){ .call = &blocking[i] };
		start_blocker(&blocked[i]);
		in_call(&blocked[i]);
	}
}

// expiring starts the calls with timeouts: of ms, but those that a stop is to end have no such one.
static long forever = 100000;
static void expiring(long ms, int stopped)
{
	for (size_t i = 0; i < NBLOCKING; i++)
		if (blocking[i].timed) {
			timeout_ms = stopped && blocking[i].timed == 2 ? forever : ms;
			blocked[i] = (struct blocker){ .call = &blocking[i], .timeout = timeout_ms };
			start_blocker(&blocked[i]);
			in_call(&blocked[i]);
		}
	timeout_ms = forever;
}

// cut is how many of those that a stop is to end have ended.
static int cut(void)
{
	int n = 0;
	for (size_t i = 0; i < NBLOCKING; i++)
		n += blocking[i].timed == 2 && GET(blocked[i].ended);
	return n;
}

static void expired(void)
{
	for (size_t i = 0; i < NBLOCKING; i++)
		if (blocking[i].timed) {
			pthread_join(blocked[i].t, NULL);
			say("%s %ld errno %d early %d", blocking[i].name, blocked[i].result, blocked[i].err, blocked[i].ms < blocked[i].timeout);
			close(blocked[i].fd[0]), close(blocked[i].fd[1]);
		}
}

static void wake(pthread_t *t)
{
	CHECK(write(line_in[1], "xxx", 3) == 3 && write(parked[1], "x", 1) == 1);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < NBLOCKING; i++) {
		end_blocker(&blocked[i]);
		say("%s %ld errno %d", blocking[i].name, blocked[i].result, blocked[i].err);
	}
	close(line_in[0]), close(line_in[1]), close(parked[0]), close(parked[1]);
}

int main(int argc, char **argv)
{
	char line[64], word[64];
	pthread_t t[4];
	if (argc > 2 && !strcmp(argv[1], "exit"))
		return atoi(argv[2]);
	handle(SA_RESTART);
	signal(SIGUSR2, on_user);
	say("ready%s", argc > 1 ? argv[1] : "");
	while (hear(line, sizeof line)) {
		long n = 0;
		sscanf(line, "%63s %ld", word, &n);
		if (!strcmp(word, "processes")) processes();
		else if (!strcmp(word, "interrupt")) interrupt();
		else if (!strcmp(word, "signals")) signals(n);
		else if (!strcmp(word, "same")) same(n);
		else if (!strcmp(word, "facts")) facts();
		else if (!strcmp(word, "raw")) raws(n);
		else if (!strcmp(word, "one")) say("result %ld", raw(n, 2, 3, 4));
		else if (!strcmp(word, "who")) say("pid %d parent %d", getpid(), getppid());
		else if (!strcmp(word, "block")) block(t);
		else if (!strcmp(word, "wake")) wake(t);
		else if (!strcmp(word, "expire")) expiring(n, 0), expired();
		else if (!strcmp(word, "expiring")) expiring(n, 1);
		else if (!strcmp(word, "cut")) say("cut %d", cut());
		else if (!strcmp(word, "expired")) expired();
		else if (!strcmp(word, "dispatch")) dispatch();
		else if (!strcmp(word, "only")) only();
		else if (!strcmp(word, "leave")) exit(n);
		else if (!strcmp(word, "exec")) execl("/proc/self/exe", argv[0], "again", NULL);
		say("did");
	}
	return verdict();
}

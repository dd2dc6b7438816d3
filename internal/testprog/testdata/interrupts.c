// What comes between a probed instruction and its end. Its input is read by raw_read, so a
// probe there is hit by every command. "handler" catches SIGTRAP from now on, "own" runs a
// breakpoint of its own, "step" traces itself over a jump; "pause N" is interrupted N times;
// "divide" faults until input comes; "dispatch" lets only its own text make system calls;
// "calls" makes system calls until input comes; "queue N" takes N signals meanwhile, in their
// order; "spin" lets no call be made until it is interrupted, or input has come.
#include "prog.h"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <ucontext.h>

long raw_read(int fd, void *to, long n), raw_pause(void), raw_getpid(void), own_int3(void), step_jump(void), divide(void);
extern char divide_insn[], __executable_start[], etext[];
#define CALL(name, set) ".globl " #name "," #name "_insn\n.type " #name ",@function\n" #name ":\n\t" set "\n" #name "_insn:\n\tsyscall\n\tret\n.size " #name ",.-" #name "\n"
asm(".text\n" CALL(raw_read, "xor %eax,%eax") CALL(raw_pause, "mov $34,%eax") CALL(raw_getpid, "mov $39,%eax")
    ".globl own_int3\n.type own_int3,@function\nown_int3:\n\tint3\n\tmov $1,%eax\n\tret\n.size own_int3,.-own_int3\n"
    ".globl step_jump,jump_insn\n.type step_jump,@function\nstep_jump:\n\tpushf\n\torl $0x100,(%rsp)\n\tpopf\n"
    "\tnop\njump_insn:\n\tjmp 1f\n\tnop\n1:\tpushf\n\tandl $~0x100,(%rsp)\n\tpopf\n\tret\n.size step_jump,.-step_jump\n"
    ".globl divide,divide_insn\n.type divide,@function\ndivide:\n\txor %ecx,%ecx\n\tmov $1,%eax\n\tcltd\n"
    "divide_insn:\n\tdiv %ecx\n\tret\n.size divide,.-divide\n");

static volatile long traps, faults, alarms, refused;
static volatile char selector;
static volatile long taken;
static pthread_t taker;
static char buf[4096];
static int len;

static void on_trap(int s, siginfo_t *si, void *uc) { traps++; }
static void on_alarm(int s) { selector = 0, alarms++; }
static void on_refusal(int s, siginfo_t *si, void *uc) { selector = 0, refused++; }
static void on_fault(int s, siginfo_t *si, void *uc)
{
	greg_t *g = ((ucontext_t *)uc)->uc_mcontext.gregs;
	CHECK((char *)g[REG_RIP] == divide_insn && (char *)si->si_addr == divide_insn);
	faults++;
	g[REG_RIP] += 2;
}
static void on_queued(int s, siginfo_t *si, void *uc) { CHECK(si->si_value.sival_int == taken++); }
static void *queue(void *n)
{
	for (long i = 0; i < (long)n;)
		if (pthread_sigqueue(taker, SIGRTMIN + 1, (union sigval){ .sival_int = i }) == 0)
			i++;
	return NULL;
}
static void catch(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(sig, &sa, NULL) == 0);
}

// command reads a line; with a probe on it, a read is a hit.
static int command(char *line)
{
	char *end;
	while (!(end = memchr(buf, '\n', len))) {
		long n = raw_read(0, buf + len, sizeof buf - len);
		if (n <= 0)
			return 0;
		len += n;
	}
	*end++ = 0;
	strcpy(line, buf);
	memmove(buf, end, len -= end - buf);
	return 1;
}

static int waiting(void)
{
	struct pollfd in = { 0, POLLIN, 0 };
	return len || poll(&in, 1, 0) > 0;
}

static void ring(long usec)
{
	struct itimerval t = { { 0, usec }, { 0, usec } };
	CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
}

static void dispatch(void)
{
	if (prctl(59, 1, (long)__executable_start, etext - __executable_start, &selector) != 0) {
		say("did -1"); // PR_SET_SYSCALL_USER_DISPATCH came with Linux 5.11
		return;
	}
	refused = 0, selector = 1;
	long pid = raw_getpid();
	selector = 0;
	CHECK(prctl(59, 0, 0, 0, 0) == 0 && pid == getpid());
	say("did %ld", refused);
}

// spin: a call that somebody else makes this thread make must pass, or refused is not 0.
static void spin(void)
{
	CHECK(prctl(59, 1, 0, 0, &selector) == 0);
	say("going");
	refused = 0, selector = 1;
	while (!GET(alarms) && !refused)
		;
	selector = 0;
	struct sigaction sa;
	CHECK(prctl(59, 0, 0, 0, 0) == 0 && refused == 0);
	CHECK(sigaction(SIGSYS, NULL, &sa) == 0 && sa.sa_sigaction == on_refusal);
	say("did");
}

int main(void)
{
	char line[sizeof buf];
	long n;
	struct sigaction sa = { .sa_handler = on_alarm };
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	catch(SIGFPE, on_fault), catch(SIGSYS, on_refusal);
	say("ready");
	while (command(line)) {
		if (!strcmp(line, "hello")) {
			say("did");
		} else if (!strcmp(line, "handler")) {
			catch(SIGTRAP, on_trap);
			say("did");
		} else if (!strcmp(line, "own")) {
			traps = 0;
			n = own_int3();
			say("did %ld traps %ld", n, traps);
		} else if (!strcmp(line, "step")) {
			traps = 0;
			step_jump();
			say("did %ld", traps);
		} else if (sscanf(line, "pause %ld", &n) == 1) {
			ring(20000);
			for (long i = 0; i < n; i++)
				CHECK(raw_pause() == -EINTR);
			ring(0);
			say("did");
		} else if (!strcmp(line, "divide")) {
			while (!waiting())
				for (int i = 0; i < 200; i++)
					divide();
			say("did %ld", faults);
		} else if (!strcmp(line, "dispatch")) {
			dispatch();
		} else if (sscanf(line, "queue %ld", &n) == 1) {
			taken = 0, taker = pthread_self();
			catch(SIGRTMIN + 1, on_queued);
			pthread_t sender = thread(queue, n);
			while (taken < n)
				raw_getpid();
			pthread_join(sender, NULL);
			say("did %ld", taken);
		} else if (!strcmp(line, "spin")) {
			alarms = 0;
			spin();
		} else if (!strcmp(line, "calls")) {
			while (!waiting())
				for (int i = 0; i < 50; i++)
					CHECK(raw_getpid() == getpid());
			say("did");
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

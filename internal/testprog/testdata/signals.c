// Signals under probes. Argument 1 says what the program does with SIGTRAP:
// default, blocked, ignored or handled; or unseen: the same as default, and handlers do not
// check that they see the program, nor who sent a SIGALRM: a killed tracer may have; or alarms: the same as unseen, and no signal is
// queued. "run N": N calls of foo, a queued real-time signal in every tenth, SIGALRM a thousand times a second; then "ran N alarms A queued Q traps T". Handlers check that they
// see no address that is not ours.
#include "prog.h"
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

static unsigned long text[64][2]; // executable memory at the start
static long alarms, queued, traps;
static int ntext, unseen;

REAL long foo(long v) { return 5 * v + 1; }

static void remember_text(void)
{
	char line[512], perms[8];
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f) && ntext < 64)
		if (sscanf(line, "%lx-%lx %7s", &text[ntext][0], &text[ntext][1], perms) == 3 && perms[2] == 'x')
			ntext++;
	fclose(f);
}

static void check_ip(void *uc)
{
	if (unseen)
		return;
	unsigned long ip = ((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
	for (int i = 0; i < ntext; i++)
		if (ip >= text[i][0] && ip < text[i][1])
			return;
	CHECK(!"a handler sees an address of the program");
}

static void on_alarm(int sig, siginfo_t *si, void *uc) { check_ip(uc); CHECK(si->si_code == SI_KERNEL || unseen && si->si_code == SI_TKILL); ADD(alarms, 1); }
static void on_trap(int sig, siginfo_t *si, void *uc) { check_ip(uc); ADD(traps, 1); }
static void on_queued(int sig, siginfo_t *si, void *uc)
{
	check_ip(uc);
	CHECK(si->si_code == SI_QUEUE && si->si_pid == getpid() && si->si_value.sival_int == queued);
	ADD(queued, 1);
}

static void catch(int sig, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(sig, &sa, NULL);
}

// is_guard: while it is probed, a program that asks for its action of SIGTRAP sees the guard's.
static int is_guard(void *handler)
{
	static void *known;
	unsigned long from, to, at = (unsigned long)handler;
	char line[512];
	if (handler == known)
		return msync((void *)(at & ~4095ul), 1, MS_ASYNC) == 0; // still mapped
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "/memfd:gokprobe") && sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= at && at < to)
			known = handler;
	fclose(maps);
	return handler == known;
}

// check_trap: the kernel resets mask and disposition of a forced SIGTRAP; nobody may see that.
static void check_trap(const char *mode)
{
	struct sigaction sa;
	sigset_t set;
	void *own = !strcmp(mode, "handled") ? (void *)on_trap : !strcmp(mode, "ignored") ? (void *)SIG_IGN : (void *)SIG_DFL;
	struct sigaction now;
	int ours, changed;
	do { // Whoever recovers the process may take the guard and its memory away between two looks at them.
		sigaction(SIGTRAP, NULL, &sa);
		// One that blocks the signal is without its guard for a moment after each hit.
		ours = (void *)sa.sa_handler == own || is_guard((void *)sa.sa_handler) || !strcmp(mode, "blocked") && sa.sa_handler == SIG_DFL;
		sigaction(SIGTRAP, NULL, &now);
		changed = now.sa_handler != sa.sa_handler;
	} while (!ours && changed);
	CHECK(ours);
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	CHECK(sigismember(&set, SIGTRAP) == !strcmp(mode, "blocked"));
	sigpending(&set);
	CHECK(!sigismember(&set, SIGTRAP));
}

// own_traps: traps that the program makes itself arrive as they would unprobed.
static void own_traps(const char *mode)
{
	struct timespec now = { 0 };
	sigset_t set;
	long before = GET(traps);
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	if (!strcmp(mode, "handled")) {
		asm volatile("int3");
		raise(SIGTRAP);
		CHECK(GET(traps) == before + 2);
	} else if (!strcmp(mode, "blocked")) {
		raise(SIGTRAP);
		CHECK(sigtimedwait(&set, NULL, &now) == SIGTRAP);
	} else if (!strcmp(mode, "ignored")) {
		raise(SIGTRAP);
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "default";
	struct itimerval tick = { { 0, 1000 }, { 0, 1000 } };
	char line[64];
	long n;
	sigset_t set;
	remember_text();
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	int alone = !strcmp(mode, "alarms");
	unseen = alone || !strcmp(mode, "unseen");
	if (!strcmp(mode, "blocked"))
		sigprocmask(SIG_BLOCK, &set, NULL);
	else if (!strcmp(mode, "ignored"))
		signal(SIGTRAP, SIG_IGN);
	else if (!strcmp(mode, "handled"))
		catch(SIGTRAP, on_trap);
	catch(SIGALRM, on_alarm);
	catch(SIGRTMIN, on_queued);
	setitimer(ITIMER_REAL, &tick, NULL);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "run %ld", &n) == 1);
		for (long i = 0; i < n; i++) {
			CHECK(foo(i) == 5 * i + 1);
			if (i % 10 == 0 && !alone) {
				long q = GET(queued);
				CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = q }) == 0 && GET(queued) == q + 1);
			}
			if (i % 100 == 0)
				own_traps(mode);
		}
		check_trap(mode);
		say("ran %ld alarms %ld queued %ld traps %ld", n, GET(alarms), GET(queued), GET(traps));
	}
	return verdict();
}

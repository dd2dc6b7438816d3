// Threads that change what signals they block, trap, fault and call foo, at random, and know at each step which signals they block. "walk N" has each of
// them take N steps and says "did walk". The argument says what the program does with SIGTRAP: "handle", "nodefer" (its handler does not block it), "block" (its handler blocks all
// signals), "ignore" or "default" (then no thread traps by itself). A second argument is the number of threads.
#include "prog.h"
#include <stdint.h>
#include <ucontext.h>

REAL long foo(long v) { return 3 * v + 1; }

static const char *kind;
static int alone;
static long steps, faults, users;
static pthread_barrier_t begin, end;
static __thread uint64_t blocks, expected_pc; // what this thread has asked to block, and where a fault of its own is
static __thread long trapped, due;             // SIGTRAPs that have come to this thread, and that were to come by now

#define BIT(sig) (1ul << ((sig) - 1))
static const uint64_t never = BIT(SIGKILL) | BIT(SIGSTOP) | BIT(32) | BIT(33);

static uint64_t word(const sigset_t *s) { uint64_t w; memcpy(&w, s, 8); return w; }

static uint64_t current(void)
{
	sigset_t now;
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	return word(&now);
}

// same compares masks, without those that nobody can block.
static void same(const char *what, uint64_t got, uint64_t want)
{
	if (__builtin_popcountl(want) > 32) // where nearly all is blocked, a tracer lets traps come
		got |= BIT(SIGTRAP) | BIT(SIGILL), want |= BIT(SIGTRAP) | BIT(SIGILL);
	if ((got & ~never) != (want & ~never) && ADD(wrong, 1) <= 10)
		dprintf(2, "%s: thread %d blocks %lx, not %lx\n", what, gettid(), got, want);
}

static void block(uint64_t set)
{
	sigset_t s;
	sigemptyset(&s);
	memcpy(&s, &set, 8);
	blocks = set; // a signal that has waited comes in the call
	CHECK(pthread_sigmask(SIG_SETMASK, &s, NULL) == 0);
}

// called is a few calls of foo, with the mask that is blocked around them.
static void called(const char *what, uint64_t want, uint64_t but)
{
	for (long i = 0; i < 3; i++)
		CHECK(foo(i) == 3 * i + 1);
	same(what, current() & ~but, want & ~but);
}

// In a handler of SIGTRAP, or with one of its own: whether that is blocked there a tracer may have changed.
static void on_trap(int sig, siginfo_t *info, void *ctx)
{
	ucontext_t *uc = ctx;
	uint64_t want = blocks, in = strcmp(kind, "block") ? blocks : ~0ul;
	trapped++;
	same("at a trap", word(&uc->uc_sigmask), want);
	called("in a handler of SIGTRAP", in, BIT(SIGTRAP) | BIT(SIGILL));
}

static void on_fault(int sig, siginfo_t *info, void *ctx)
{
	ucontext_t *uc = ctx;
	ADD(faults, 1);
	CHECK((uint64_t)uc->uc_mcontext.gregs[REG_RIP] == expected_pc);
	same("at a fault", word(&uc->uc_sigmask), blocks);
	called("in a handler of SIGSEGV", blocks | BIT(SIGSEGV), 0);
	uc->uc_mcontext.gregs[REG_RIP] += 3; // mov (%rax),%rax
}

static void on_user(int sig, siginfo_t *info, void *ctx)
{
	ucontext_t *uc = ctx;
	ADD(users, 1);
	same("at a signal", word(&uc->uc_sigmask), blocks);
	called("in a handler of SIGUSR1", blocks | BIT(SIGUSR1), 0);
}

static void fault(void)
{
	asm volatile("lea 1f(%%rip),%%rcx\nmov %%rcx,%0\nxor %%eax,%%eax\n1: mov (%%rax),%%rax" : "=m"(expected_pc) : : "rax", "rcx", "memory");
}

static void step(unsigned *seed, long i)
{
	static const uint64_t sets[] = { 0, BIT(SIGTRAP), BIT(SIGTRAP) | BIT(SIGSEGV), BIT(SIGSEGV), BIT(SIGILL) | BIT(SIGBUS), BIT(SIGUSR1), ~0ul, ~0ul & ~BIT(SIGTRAP) };
	int handled = strcmp(kind, "default") && strcmp(kind, "ignore");
	uint64_t set;
	switch (rand_r(seed) % 8) {
	case 0: case 1:
		set = sets[rand_r(seed) % (sizeof sets / sizeof *sets)] & ~never;
		if (set == BIT(SIGTRAP) || set == (BIT(SIGTRAP) | BIT(SIGSEGV)))
			set = alone && handled ? set : 0;
		block(set);
		break;
	case 2:
		if (!(blocks & BIT(SIGTRAP)) && handled) {
			due++;
			asm volatile("int3");
		}
		break;
	case 3:
		if (!(blocks & BIT(SIGTRAP)) && handled) {
			due++;
			asm volatile(".byte 0xf1");
		}
		break;
	case 4:
		if (!(blocks & BIT(SIGSEGV)))
			fault();
		break;
	case 5:
		CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
		break;
	case 6:
		block(0);
		break;
	case 7:
		// Where nearly all but SIGTRAP is blocked, a tracer may keep it until less is. One that comes late is waited for.
		if (blocks & (BIT(SIGTRAP) | BIT(SIGUSR1)) || trapped != due || (!handled && strcmp(kind, "ignore")))
			break;
		due += handled;
		CHECK(pthread_kill(pthread_self(), SIGTRAP) == 0);
		break;
	}
	called("outside", blocks, 0);
}

static void *walk(void *arg)
{
	unsigned seed = 77 + (long)arg;
	for (;;) {
		pthread_barrier_wait(&begin);
		if (steps == 0)
			return NULL;
		for (long i = 0; i < steps; i++)
			step(&seed, i);
		block(0);
		for (int i = 0; i < 1000 && trapped != due; i++)
			sched_yield();
		if (trapped != due && ADD(wrong, 1) <= 10)
			dprintf(2, "thread %d got %ld traps, not %ld\n", gettid(), trapped, due);
		pthread_barrier_wait(&end);
	}
}

static void handler(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = SA_SIGINFO | flags };
	if (sig == SIGTRAP && !strcmp(kind, "block"))
		sigfillset(&sa.sa_mask);
	CHECK(sigaction(sig, &sa, NULL) == 0);
}

int main(int argc, char **argv)
{
	char line[64];
	pthread_t all[16];
	int n = argc > 2 ? atoi(argv[2]) : 1;
	kind = argv[1], alone = n == 1;
	handler(SIGSEGV, on_fault, 0);
	handler(SIGUSR1, on_user, 0);
	if (!strcmp(kind, "ignore"))
		signal(SIGTRAP, SIG_IGN);
	else if (strcmp(kind, "default"))
		handler(SIGTRAP, on_trap, strcmp(kind, "nodefer") ? 0 : SA_NODEFER);
	pthread_barrier_init(&begin, NULL, n + 1);
	pthread_barrier_init(&end, NULL, n + 1);
	for (int i = 0; i < n; i++)
		all[i] = thread(walk, i);
	say("ready");
	while (hear(line, sizeof line)) {
		struct sigaction sa;
		CHECK(sscanf(line, "walk %ld", &steps) == 1);
		pthread_barrier_wait(&begin);
		pthread_barrier_wait(&end);
		CHECK(sigaction(SIGSEGV, NULL, &sa) == 0);
		say("did walk");
	}
	struct sigaction sa;
	CHECK(sigaction(SIGTRAP, NULL, &sa) == 0 && (!strcmp(kind, "ignore") ? sa.sa_handler == SIG_IGN : !strcmp(kind, "default") ? sa.sa_handler == SIG_DFL : sa.sa_sigaction == on_trap));
	CHECK(sigaction(SIGSEGV, NULL, &sa) == 0 && sa.sa_sigaction == on_fault);
	steps = 0;
	pthread_barrier_wait(&begin);
	for (int i = 0; i < n; i++)
		pthread_join(all[i], NULL);
	return verdict();
}

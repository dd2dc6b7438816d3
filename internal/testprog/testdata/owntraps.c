// A program that begins to use SIGTRAP while it runs. Each command says what it has seen; foo has a probe, perhaps. "act KIND" sets its action:
// "handle", "nodefer", "block" (a handler that blocks all signals), "ignore", "default". "ask" tells the action. "mask HOW" blocks or unblocks SIGTRAP. "raise", "int3" raise it, and its handler calls
// foo several times. "call" calls foo. "many N SEED" does N of those at random.
#include "prog.h"

REAL long foo(long v) { return 3 * v + 1; }

static volatile long traps, depth, deepest;

static void on_trap(int sig)
{
	sigset_t now;
	int blocked;
	if (++depth > deepest)
		deepest = depth;
	for (int i = 0; i < 3; i++)
		CHECK(foo(traps + i) == 3 * (traps + i) + 1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	blocked = sigismember(&now, SIGUSR1); // SIGTRAP itself a guard does not block there
	traps += 1 + 1000 * blocked;
	depth--;
}

static const char *action(void)
{
	struct sigaction sa;
	static char text[64];
	CHECK(sigaction(SIGTRAP, NULL, &sa) == 0);
	snprintf(text, sizeof text, "%s flags %x mask %lx", sa.sa_handler == SIG_IGN ? "ignored" : sa.sa_handler == SIG_DFL ? "default" : sa.sa_handler == on_trap ? "own" : "other",
		 sa.sa_flags, *(unsigned long *)&sa.sa_mask);
	return text;
}

static void set(const char *kind)
{
	struct sigaction sa = { .sa_handler = on_trap };
	if (!strcmp(kind, "nodefer"))
		sa.sa_flags = SA_NODEFER;
	else if (!strcmp(kind, "block"))
		sigfillset(&sa.sa_mask);
	else if (!strcmp(kind, "ignore"))
		sa.sa_handler = SIG_IGN;
	else if (!strcmp(kind, "default"))
		sa.sa_handler = SIG_DFL;
	else
		CHECK(!strcmp(kind, "handle"));
	CHECK(sigaction(SIGTRAP, &sa, NULL) == 0);
}

static void mask(const char *how)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, SIGTRAP);
	CHECK(sigprocmask(strcmp(how, "block") ? SIG_UNBLOCK : SIG_BLOCK, &s, NULL) == 0);
}

static void report(const char *what)
{
	sigset_t blocked, waiting;
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	sigpending(&waiting);
	say("did %s: traps %ld deep %ld blocked %d pending %d", what, traps, deepest, sigismember(&blocked, SIGTRAP), sigismember(&waiting, SIGTRAP));
}

// many does what is allowed at random: nothing that would kill the program alone.
static void many(long n, unsigned seed)
{
	const char *kinds[] = { "handle", "nodefer", "block", "ignore" };
	int blocked = 0, handled = 0, ignored = 0;
	struct sigaction sa;
	CHECK(sigaction(SIGTRAP, NULL, &sa) == 0);
	for (long i = 0; i < n; i++) {
		int what = rand_r(&seed) % 8, kind = rand_r(&seed) % 4;
		if (what == 0) {
			set(kinds[kind]);
			handled = kind < 3, ignored = kind == 3;
		} else if (what == 1 && (blocked || handled || ignored)) {
			mask((blocked = !blocked) ? "block" : "unblock");
		} else if (what == 2 && (handled || ignored)) {
			long before = traps;
			raise(SIGTRAP);
			CHECK(traps == before + (handled && !blocked ? kind = traps - before : 0));
		} else if (what == 3 && handled && !blocked) {
			long before = traps;
			asm volatile("int3");
			CHECK(traps > before);
		} else
			for (int k = 0; k < 5; k++)
				CHECK(foo(i + k) == 3 * (i + k) + 1);
	}
	if (handled || ignored)
		mask("unblock");
}

int main(void)
{
	char line[64], word[32];
	long n;
	unsigned seed;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "act %31s", word) == 1)
			set(word);
		else if (sscanf(line, "mask %31s", word) == 1)
			mask(word);
		else if (!strcmp(line, "ask\n")) {
			say("did %s", action());
			continue;
		} else if (!strcmp(line, "raise\n"))
			raise(SIGTRAP);
		else if (!strcmp(line, "int3\n"))
			asm volatile("int3");
		else if (!strcmp(line, "call\n"))
			for (int i = 0; i < 5; i++)
				CHECK(foo(i) == 3 * i + 1);
		else if (sscanf(line, "many %ld %u", &n, &seed) == 2)
			many(n, seed);
		else
			CHECK(!"a known command");
		line[strcspn(line, "\n")] = 0;
		report(line);
	}
	return verdict();
}

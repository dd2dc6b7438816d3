// Calls foo with addresses that can't be read. Arguments: "handled", it has handlers for faults;
// "blocked", it blocks them; "ignored". "call N": N rounds, then "called N". Neither actions nor the mask may
// change during them, and no handler may run. "actions": whether the actions are the program's own.
#include "prog.h"
#include <sys/mman.h>

REAL long foo(const char *s, long v) { return 3 * v + 1; }

static const int faults[] = { SIGSEGV, SIGBUS };
static struct sigaction own[2];

static void look(struct sigaction *act)
{
	for (int k = 0; k < 2; k++)
		sigaction(faults[k], NULL, &act[k]);
}

static int same(struct sigaction *a, struct sigaction *b)
{
	return a[0].sa_handler == b[0].sa_handler && a[1].sa_handler == b[1].sa_handler &&
		a[0].sa_flags == b[0].sa_flags && a[1].sa_flags == b[1].sa_flags;
}

static void handler(int sig) { CHECK(!"a fault of the program's"); }

int main(int argc, char **argv)
{
	struct sigaction want[2], now[2];
	sigset_t before, after;
	char line[64];
	long n;
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	sigemptyset(&before);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "blocked"))
			sigfillset(&before);
		struct sigaction act = { .sa_handler = argv[i][0] == 'i' ? SIG_IGN : handler, .sa_flags = SA_RESTART };
		if (argv[i][0] != 'b')
			for (int k = 0; k < 2; k++)
				sigaction(faults[k], &act, NULL);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	sigprocmask(SIG_SETMASK, NULL, &before);
	look(own);
	const char *bad[] = { (char *)16, page + 4093, (char *)(1UL << 63), page + 4096, "good" };
	say("ready");
	while (hear(line, sizeof line)) {
		look(want);
		if (line[0] == 'a') {
			say("actions %s", same(own, want) ? "own" : "others");
			continue;
		}
		CHECK(sscanf(line, "call %ld", &n) == 1);
		for (long i = 0; i < n; i++) {
			CHECK(foo(bad[i % 5], i) == 3 * i + 1);
			sigprocmask(SIG_SETMASK, NULL, &after);
			for (int k = 0; k < 2; k++)
				CHECK(sigismember(&before, faults[k]) == sigismember(&after, faults[k]));
			look(now);
			CHECK(same(now, want));
		}
		say("called %ld", n);
	}
	return verdict();
}

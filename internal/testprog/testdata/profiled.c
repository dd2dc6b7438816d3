// "run N": calls busy() until N signals of a timer have come between its first instructions, or a hundred times as many at all, and prints "ran CALLS N".
#include "prog.h"
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

long busy(long);
__asm__(".text\n.globl busy\n.type busy, @function\n"
	"busy:\tpush %rbp\n\tmov %rsp, %rbp\n\tlea 1(%rdi), %rax\n\tpop %rbp\n\tret\n.size busy, .-busy\n");

static volatile long inside, all;

static void tick(int sig, siginfo_t *info, void *context)
{
	long ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	all++;
	if (ip > (long)busy && ip < (long)busy + 8)
		inside++;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
	char line[64];
	long calls, want;

	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "run %ld", &want) == 1);
		inside = all = 0;
		CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
		for (calls = 0; inside < want && all < 100 * want; calls++)
			CHECK(busy(calls) == calls + 1);
		CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
		say("ran %ld %ld", calls, inside);
	}
	return verdict();
}

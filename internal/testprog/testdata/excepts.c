// Instructions that raise exceptions, one for each command: "int3", "ud2", "read". The handler goes on behind the instruction, and the answer is what it was told.
#include "prog.h"
#include <ucontext.h>

extern const char at_int3[], at_ud2[], at_read[], behind_ud2[], behind_read[];
static int times, signo, code, right;

static void on_exception(int sig, siginfo_t *info, void *context)
{
	greg_t *ip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	times++, signo = sig, code = info->si_code;
	if (*ip == (greg_t)at_ud2)
		right = 1, *ip = (greg_t)behind_ud2;
	else if (*ip == (greg_t)at_read)
		right = info->si_addr == (void *)8, *ip = (greg_t)behind_read;
	else
		right = *ip == (greg_t)at_int3 + 1;
}

int main(void)
{
	char line[64];
	struct sigaction sa = { .sa_sigaction = on_exception, .sa_flags = SA_SIGINFO };
	sigaction(SIGTRAP, &sa, NULL), sigaction(SIGILL, &sa, NULL), sigaction(SIGSEGV, &sa, NULL);
	say("ready");
	while (hear(line, sizeof line)) {
		times = signo = code = right = 0;
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "int3"))
			asm volatile("at_int3: int3" ::: "memory");
		else if (!strcmp(line, "ud2"))
			asm volatile("at_ud2: ud2; behind_ud2:" ::: "memory");
		else if (!strcmp(line, "read"))
			asm volatile("at_read: mov (%0),%%rax; behind_read:" ::"r"(8L) : "rax", "memory");
		say("did %s: signal %d code %d right %d times %d", line, signo, code, right, times);
	}
	return verdict();
}

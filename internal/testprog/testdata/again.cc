// Calls that end without a return, and whose place on the stack is used again or is not.
// "throws N" calls odd N times from one place, which throws every other time, and prints
// "sum S"; "vfork N" makes N children by vfork, which call twice in the frame that has called
// vfork, and prints "sum S"; "park N" has N threads longjmp out of leap, deep on their
// stacks, and wait; "leap" calls leap in the main thread; "dive N" calls dive N deep, says "deep",
// waits for a line and prints "ret R"; "fault N" reads N times from memory that a handler of
// SIGSEGV maps, at a function's entry and behind its return, and prints "sum S".
#include "prog.h"
#include <alloca.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/mman.h>

extern "C" {

REAL long twice(long v) { return v * 2; }

REAL long odd(long v)
{
	if (v % 2)
		throw v;
	return twice(v) + 1;
}

static long throws(long n)
{
	long sum = 0;
	for (long i = 0; i < n; i++) {
		try {
			sum += odd(i);
		} catch (long v) {
			sum -= v;
		}
	}
	return sum;
}

REAL long vforked(long v)
{
	volatile long r = 0;
	pid_t pid = vfork();
	if (pid == 0) {
		r = twice(v);
		r += twice(r);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return r;
}

static thread_local jmp_buf out;
static sem_t parked, stay;
REAL long leap(long v)
{
	if (v)
		longjmp(out, v);
	return 7;
}

REAL long leap_deep(long v)
{
	volatile char *frame = (volatile char *)alloca(64 << 10);
	frame[0] = v;
	return leap(v) + frame[0];
}

static void *park(void *)
{
	if (!setjmp(out))
		leap_deep(1);
	sem_post(&parked);
	while (sem_wait(&stay))
		;
	return NULL;
}

REAL long dive(long n)
{
	char line[16];
	if (n == 0) {
		say("deep");
		return hear(line, sizeof line);
	}
	n = dive(n - 1);
	asm volatile("" : "+r"(n)); // a call, no loop
	return n + 1;
}

static char *page;
long load_entry(char *p), load_return(char *p), load_back(char *p);
asm(".text\n.globl load_entry,load_return,load_back\n.type load_entry,@function\n.type load_return,@function\n.type load_back,@function\n"
	"load_entry: movzbl (%rdi),%eax\n ret\n.size load_entry,.-load_entry\n"
	"load_back: mov $1,%eax\n ret\n.size load_back,.-load_back\n"
	"load_return: push %rdi\n call load_back\n movzbl (%rdi),%eax\n add $1,%eax\n pop %rdi\n ret\n.size load_return,.-load_return\n");

static void lend(int, siginfo_t *info, void *)
{
	CHECK(info->si_addr == page);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

static long faults(long n)
{
	struct sigaction sa = {};
	sa.sa_sigaction = lend;
	sa.sa_flags = SA_SIGINFO;
	sigaction(SIGSEGV, &sa, NULL);
	page = (char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*page = 5;
	long sum = 0;
	for (long i = 0; i < n; i++) {
		mprotect(page, 4096, PROT_NONE);
		sum += load_entry(page);
		mprotect(page, 4096, PROT_NONE);
		sum += load_return(page);
	}
	return sum;
}

}

int main(void)
{
	char line[64];
	long n;
	sem_init(&parked, 0, 0);
	sem_init(&stay, 0, 0);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "throws %ld", &n) == 1) {
			say("sum %ld", throws(n));
		} else if (sscanf(line, "vfork %ld", &n) == 1) {
			long sum = 0;
			for (long i = 1; i <= n; i++)
				sum += vforked(i);
			say("sum %ld", sum);
		} else if (sscanf(line, "park %ld", &n) == 1) {
			for (long i = 0; i < n; i++)
				pthread_detach(thread(park, 0));
			for (long i = 0; i < n; i++)
				while (sem_wait(&parked))
					;
			say("parked");
		} else if (!strcmp(line, "leap\n")) {
			say("ret %ld", leap_deep(0));
		} else if (sscanf(line, "dive %ld", &n) == 1) {
			say("ret %ld", dive(n));
		} else if (sscanf(line, "fault %ld", &n) == 1) {
			say("sum %ld", faults(n));
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

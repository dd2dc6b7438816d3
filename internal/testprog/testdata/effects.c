// What a probe's handler may do to a thread. Commands: "go V" calls probed(V) in this thread, "worker V" in another
// one, "vfork V" in a child that shares the memory; each prints "ret R". "deep V" calls it from V frames, "many V" V times, "enter V" another function. Meanwhile:
// "exit", "exec", "fork", which print what they do, "hello", which prints "hello". "signals" prints how many
// SIGUSR1 have come to the thread that called probed, with si_code SI_TKILL, since it was asked last; "block" has
// them blocked during the next "go", and prints how many were pending behind the call.
#include "prog.h"
#include <sys/syscall.h>
#include <ucontext.h>

static long taken, block_next;
static _Thread_local long calling;
extern char __executable_start[], etext[];

REAL long probed(long v) { return v / 3; }
REAL long deep(long v) { return v > 1 ? deep(v - 1) + 1 : probed(30) + 1; }
long entered(long v);
// A function that begins with a landing pad, whatever flags there are, and leaves no trace of what it did but its result.
asm(".text\n.globl entered\n.type entered,@function\nentered:\n\tendbr64\n\tpush %rbx\n\tmov %rdi,%rbx\n\tlea 1(%rbx),%rax\n\tpop %rbx\n\tret\n"
    ".size entered,.-entered\n");

static void on_signal(int sig, siginfo_t *si, void *uc_)
{
	char *ip = (char *)((ucontext_t *)uc_)->uc_mcontext.gregs[REG_RIP];
	CHECK(sig == SIGUSR1 && si->si_code == SI_TKILL && calling);
	CHECK(GET(block_next) || ip >= __executable_start && ip < etext);
	ADD(taken, 1);
}

static long call(long v)
{
	sigset_t usr1, pending;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	long block = GET(block_next);
	if (block)
		pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	SET(calling, 1);
	long r = probed(v);
	if (block) {
		sigpending(&pending);
		say("pending %d", sigismember(&pending, SIGUSR1));
		pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
		SET(block_next, 0);
	}
	SET(calling, 0);
	return r;
}

REAL void say_ret(long r) { say("ret %ld", r); }
static void *worker(void *v) { say_ret(call((long)v)); return NULL; }

int main(int argc, char **argv)
{
	char line[64];
	long v;
	(void)argv;
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	say(argc > 1 ? "again" : "ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "go %ld", &v) == 1) {
			say("ret %ld", call(v));
		} else if (sscanf(line, "enter %ld", &v) == 1) {
			say("ret %ld", entered(v));
		} else if (sscanf(line, "deep %ld", &v) == 1) {
			say("ret %ld", deep(v));
		} else if (sscanf(line, "many %ld", &v) == 1) {
			long sum = 0;
			for (long i = 0; i < v; i++)
				sum += call(30);
			say("sum %ld", sum);
		} else if (sscanf(line, "worker %ld", &v) == 1) {
			pthread_detach(thread(worker, v));
		} else if (sscanf(line, "vfork %ld", &v) == 1) {
			pid_t pid = vfork();
			if (pid == 0) {
				say("ret %ld", probed(v));
				_exit(0);
			}
			CHECK(waitpid(pid, NULL, 0) == pid);
			say("waited");
		} else if (!strcmp(line, "exit\n")) {
			_exit(7);
		} else if (!strcmp(line, "exec\n")) {
			execl("/proc/self/exe", "effects", "again", NULL);
		} else if (!strcmp(line, "fork\n")) {
			int status;
			pid_t pid = fork();
			if (pid == 0)
				_exit(probed(15));
			CHECK(waitpid(pid, &status, 0) == pid);
			say("child %d", WEXITSTATUS(status));
		} else if (!strcmp(line, "hello\n")) {
			say("hello");
		} else if (!strcmp(line, "block\n")) {
			SET(block_next, 1);
			say("blocked");
		} else if (!strcmp(line, "signals\n")) {
			say("signals %ld", __atomic_exchange_n(&taken, 0, __ATOMIC_SEQ_CST));
		} else {
			CHECK(!"a known command");
		}
	}
	return verdict();
}

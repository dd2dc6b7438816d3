// A program in a tight place. Argument 1: "strict", the kernel kills it for all calls but read, write, exit and sigreturn; "filter", a seccomp filter does for
// mmap, munmap and memfd_create; "few", one does for all but read, write, exit and exit_group; "nofile", it can't open another descriptor; "below", it has memory
// below the program, as Java does. "foo N" calls foo N times; "queue N" has a child queue N real-time signals with values, and calls foo until
// all of them came. Both print "did N".
#include "prog.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static long queued;

REAL long foo(long v) { return 23 * v + 1; }

static void on_queued(int sig, siginfo_t *si, void *uc)
{
	CHECK(si->si_code == SI_QUEUE && si->si_value.sival_int == queued);
	ADD(queued, 1);
}

static void filter(int few)
{
	unsigned listed = few ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS;
	unsigned others = few ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW;
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, few ? SYS_read : SYS_memfd_create, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, few ? SYS_write : SYS_mmap, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, few ? SYS_exit : SYS_munmap, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, few ? SYS_exit_group : SYS_munmap, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, others),
		BPF_STMT(BPF_RET | BPF_K, listed),
	};
	struct sock_fprog p = { sizeof f / sizeof *f, f };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
}

static void send_all(pid_t to, long n)
{
	for (long i = 0; i < n; i++)
		while (sigqueue(to, SIGRTMIN, (union sigval){ .sival_int = i }) != 0)
			sched_yield(); // the queue is full
}

static void queue(long n)
{
	pid_t self = getpid(), child;
	long calls = 0;
	SET(queued, 0);
	child = fork();
	if (child == 0) {
		send_all(self, n);
		_exit(0);
	}
	for (; GET(queued) < n; calls++)
		CHECK(foo(calls) == 23 * calls + 1);
	CHECK(waitpid(child, NULL, 0) == child);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct rlimit none = { 3, 3 };
	char line[64];
	long n;
	sigaction(SIGRTMIN, &sa, NULL);
	int strict = argc > 1 && !strcmp(argv[1], "strict");
	if (strict)
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
	if (argc > 1 && !strcmp(argv[1], "filter"))
		filter(0);
	if (argc > 1 && !strcmp(argv[1], "few"))
		filter(1);
	if (argc > 1 && !strcmp(argv[1], "nofile"))
		CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	if (argc > 1 && !strcmp(argv[1], "below"))
		CHECK(mmap((void *)0x200000, 0x10000, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)0x200000);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "queue %ld", &n) == 1)
			queue(n);
		else if (sscanf(line, "foo %ld", &n) == 1)
			for (long i = 0; i < n; i++)
				CHECK(foo(i) == 23 * i + 1);
		else
			CHECK(!"known command");
		say("did %ld", n);
	}
	int status = verdict();
	if (strict)
		syscall(SYS_exit, status); // exit_group is not one of the four
	return status;
}

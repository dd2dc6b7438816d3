// System calls to make fail. "open N" opens NAME.conf and NAME.txt, that do not exist, N times each by turns and prints how often errno was
// ENOENT and how often EPERM; "write N" writes a byte to /dev/null, descriptor 77, N times and prints "failed K:" with the numbers of the writes that did, from 1;
// "threads T N" does that in T threads and prints "failed K of C"; "raw N" calls getpid by syscall(2) and by libc N times each and prints how many
// calls returned another number; "sleep" sleeps for 20 ms and prints how; "tick N" calls getuid N times under the signals of a timer and
// prints how often it failed; "fork" forks and prints the error or the child's status; "spawn" starts
// /bin/true; "thread" makes a thread; "load PATH" loads libsys.so, which makes system calls itself, and prints whether its getpid is another; "child N" is "write N" in a forked child; "jail" has any
// call killed that the rest of "raw" does not need, but getppid, which then fails with EPERM; "parent" makes that and prints its errno.
#include "prog.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

static int null;

static void opens(long n)
{
	long noent = 0, perm = 0;
	for (long i = 0; i < n; i++)
		for (int k = 0; k < 2; k++) {
			int fd = open(k ? "/nonexistent/a.conf" : "/nonexistent/a.txt", O_RDONLY);
			CHECK(fd == -1 && (errno == ENOENT || errno == EPERM));
			noent += errno == ENOENT;
			perm += errno == EPERM;
		}
	say("opened noent %ld perm %ld", noent, perm);
}

static long failing, total;
static void *writes(void *arg)
{
	for (long i = 0; i < (long)arg; i++) {
		int r = write(null, "x", 1);
		CHECK(r == 1 || (r == -1 && errno == ENOSPC));
		ADD(total, 1);
		if (r == -1)
			ADD(failing, 1);
	}
	return NULL;
}

static void each(long n)
{
	static char line[1 << 16];
	long failed = 0;
	int at = 0;
	for (long i = 1; i <= n; i++)
		if (write(null, "x", 1) != 1) {
			CHECK(errno == ENOSPC);
			failed++;
			if (at < (int)sizeof line - 32)
				at += sprintf(line + at, " %ld", i);
		}
	line[at] = 0;
	say("failed %ld:%s", failed, line);
}

static void threads(long t, long n)
{
	pthread_t all[64];
	failing = total = 0;
	for (long i = 0; i < t; i++)
		CHECK(pthread_create(&all[i], NULL, writes, (void *)n) == 0);
	for (long i = 0; i < t; i++)
		pthread_join(all[i], NULL);
	say("failed %ld of %ld", failing, total);
}

static void raws(long n)
{
	long other = 0, pid = getpid();
	for (long i = 0; i < n; i++) {
		other += syscall(SYS_getpid) != pid;
		other += getpid() != pid;
	}
	say("other %ld", other);
}

static void ignore(int sig) {}

// ticking makes N calls of getuid, while a timer's signals come every millisecond.
static void ticking(long n)
{
	struct sigaction sa = { .sa_handler = ignore, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	long failed = 0;
	for (long i = 0; i < n; i++)
		failed += syscall(SYS_getuid) == -1;
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	say("ticked %ld", failed);
}

static long status_of(pid_t pid)
{
	int status = 0;
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void *nothing(void *arg) { return arg; }

static void make(const char *what)
{
	extern char **environ;
	char *args[] = { "true", NULL };
	pthread_t t;
	pid_t pid = 0;
	int err = 0;
	if (!strcmp(what, "thread")) {
		if ((err = pthread_create(&t, NULL, nothing, NULL)) == 0)
			pthread_join(t, NULL);
		say("thread errno %d", err);
		return;
	}
	if (!strcmp(what, "spawn"))
		err = posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ);
	else if ((pid = fork()) == 0)
		_exit(9);
	else if (pid < 0)
		err = errno;
	say("%s errno %d status %ld", what, err, err ? -1 : status_of(pid));
}

static void load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	long (*f)(void) = lib ? dlsym(lib, "own_getpid") : NULL;
	CHECK(f != NULL);
	say("loaded other %d", f && f() != getpid());
}

#define PASS(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void jail(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		PASS(SYS_read), PASS(SYS_write), PASS(SYS_getpid), PASS(SYS_exit_group), PASS(SYS_restart_syscall),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = { sizeof f / sizeof *f, f };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
	say("jailed");
}

int main(void)
{
	char line[4096], word[4096], path[4096];
	null = dup2(open("/dev/null", O_WRONLY), 77);
	CHECK(null == 77);
	say("ready");
	while (hear(line, sizeof line)) {
		long n = 0, m = 0;
		struct timespec t = { 0, 20000000 };
		sscanf(line, "%63s %ld %ld", word, &n, &m);
		if (!strcmp(word, "open")) opens(n);
		else if (!strcmp(word, "write")) each(n);
		else if (!strcmp(word, "threads")) threads(n, m);
		else if (!strcmp(word, "raw")) raws(n);
		else if (!strcmp(word, "sleep")) say("slept %d", clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL));
		else if (!strcmp(word, "tick")) ticking(n);
		else if (!strcmp(word, "load")) sscanf(line, "%*s %4095s", path), load(path);
		else if (!strcmp(word, "jail")) jail();
		else if (!strcmp(word, "parent")) say("errno %d", syscall(SYS_getppid) == -1 ? errno : 0);
		else if (!strcmp(word, "child")) {
			pid_t pid = fork();
			if (pid == 0) {
				each(n);
				_exit(0);
			}
			CHECK(status_of(pid) == 0);
			say("did");
		} else make(word);
	}
	return verdict();
}

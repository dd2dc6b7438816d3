// Calls that block until a byte arrives or something else ends them. in_call waits until one
// does block; it asks /proc.
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>

struct blocker;
static long timeout_ms = 100000;
// timed: it has a timeout, 2: and fails with EINTR when job control stops it (signal(7)).
struct blocking { const char *name; int nr; long (*f)(struct blocker *); int timed; };
// A thread in such a call. fd is a pair of sockets; a byte on fd[1] ends what waits for fd[0].
// The others are ended by SIGUSR2.
struct blocker { const struct blocking *call; int fd[2], tid, word, ended; long result, ms, timeout; int err; pthread_t t; };

static struct timespec timeout(void) { return (struct timespec){ timeout_ms / 1000, timeout_ms % 1000 * 1000000 }; }
static sigset_t no_signals(void) { sigset_t s; sigemptyset(&s); return s; }

static long b_read(struct blocker *b) { char c; return read(b->fd[0], &c, 1); }
static long b_recv(struct blocker *b) { char c; return recv(b->fd[0], &c, 1, 0); }
static long b_poll(struct blocker *b) { struct pollfd p = { b->fd[0], POLLIN, 0 }; return poll(&p, 1, timeout_ms); }
static long b_ppoll(struct blocker *b)
{
	struct pollfd p = { b->fd[0], POLLIN, 0 };
	sigset_t s = no_signals();
	return ppoll(&p, 1, NULL, &s);
}
static long b_select(struct blocker *b)
{
	fd_set set;
	struct timeval tv = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
	FD_ZERO(&set);
	FD_SET(b->fd[0], &set);
	return select(b->fd[0] + 1, &set, NULL, NULL, &tv);
}
// pselect is the only one that lets the signal through.
static long b_pselect(struct blocker *b)
{
	fd_set set;
	sigset_t s = no_signals(), mine = no_signals(), old;
	long r;
	FD_ZERO(&set);
	FD_SET(b->fd[0], &set);
	sigaddset(&mine, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &mine, &old);
	r = pselect(b->fd[0] + 1, &set, NULL, NULL, NULL, &s);
	int e = errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = e;
	return r;
}
static long b_epoll(struct blocker *b)
{
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, b->fd[0], &e) == 0);
	long r = epoll_wait(ep, &e, 1, timeout_ms);
	int err = errno;
	close(ep);
	errno = err;
	return r;
}
// A wait that a stop interrupts is taken up again, and does not wait if the word has changed meanwhile.
static long futex_wait(struct blocker *b, struct timespec *t)
{
	long r = syscall(SYS_futex, &b->word, FUTEX_WAIT_PRIVATE, 0, t, NULL, 0);
	return r < 0 && errno == EAGAIN && GET(b->word) ? (errno = 0) : r;
}
static long b_futex(struct blocker *b) { return futex_wait(b, NULL); }
static long b_futex_timed(struct blocker *b) { struct timespec t = timeout(); return futex_wait(b, &t); }
static long b_nanosleep(struct blocker *b) { struct timespec t = timeout(); return nanosleep(&t, &t) < 0 ? -1 - (t.tv_sec < 90) : 0; }
static long b_clock_nanosleep(struct blocker *b)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += timeout_ms % 1000 * 1000000;
	t.tv_sec += timeout_ms / 1000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	return errno ? -1 : 0;
}
static long b_pause(struct blocker *b) { return pause(); }
static long b_sigsuspend(struct blocker *b) { sigset_t s = no_signals(); return sigsuspend(&s); }
static long b_sigtimedwait(struct blocker *b)
{
	struct timespec t = timeout();
	sigset_t s = no_signals();
	sigaddset(&s, SIGHUP);
	return sigtimedwait(&s, NULL, &t);
}
static long b_wait(struct blocker *b)
{
	char c;
	pid_t pid = fork();
	if (pid == 0)
		_exit(read(b->fd[0], &c, 1) == 1 ? 0 : 1);
	long r = waitpid(pid, NULL, 0);
	int e = errno;
	SET(b->ended, 1);
	if (r < 0) {
		CHECK(write(b->fd[1], "x", 1) == 1 && waitpid(pid, NULL, 0) == pid);
		errno = e;
	}
	return r == pid ? 1 : r;
}
static long b_semop(struct blocker *b)
{
	struct sembuf op = { 0, -1, 0 };
	int id = semget(IPC_PRIVATE, 1, 0600);
	long r = semop(id, &op, 1);
	int e = errno;
	semctl(id, 0, IPC_RMID);
	errno = e;
	return r;
}

#define B(name, nr) { #name, SYS_##nr, b_##name, 0 }
#define T(name, nr) { #name, SYS_##nr, b_##name, 1 }
#define E(name, nr) { #name, SYS_##nr, b_##name, 2 }
static const struct blocking blocking[] = {
	B(read, read), B(recv, recvfrom), T(poll, poll), B(ppoll, ppoll), T(select, pselect6), B(pselect, pselect6), E(epoll, epoll_wait),
	B(futex, futex), T(futex_timed, futex), T(nanosleep, clock_nanosleep), T(clock_nanosleep, clock_nanosleep), B(pause, pause),
	B(sigsuspend, rt_sigsuspend), E(sigtimedwait, rt_sigtimedwait), B(wait, wait4), B(semop, semtimedop),
};
#define NBLOCKING (sizeof blocking / sizeof *blocking)

static void *blocker(void *arg)
{
	struct blocker *b = arg;
	SET(b->tid, gettid());
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	errno = 0;
	b->result = b->call->f(b);
	b->err = errno;
	clock_gettime(CLOCK_MONOTONIC, &to);
	b->ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 + 1;
	SET(b->ended, 1);
	return NULL;
}

static void start_blocker(struct blocker *b)
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, b->fd) == 0);
	b->t = thread(blocker, (long)b);
	while (!GET(b->tid))
		sched_yield();
}

// in_call waits until the call blocks, and tells whether it does or has ended.
static long in_call(struct blocker *b)
{
	char path[64], text[256];
	while (!GET(b->ended)) {
		sprintf(path, "/proc/self/task/%d/syscall", b->tid);
		int fd = open(path, O_RDONLY), n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
		if (fd >= 0)
			close(fd);
		text[n < 0 ? 0 : n] = 0;
		// The kernel repeats some interrupted calls as restart_syscall(2).
		if (n > 0 && (atoi(text) == b->call->nr || atoi(text) == SYS_restart_syscall) && *text >= '0' && *text <= '9')
			return !GET(b->ended);
		sched_yield();
	}
	return 0;
}

// end_blocker ends the call if it still blocks.
static void end_blocker(struct blocker *b)
{
	SET(b->word, 1);
	CHECK(write(b->fd[1], "x", 1) == 1);
	syscall(SYS_futex, &b->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	switch (b->call->nr) {
	case SYS_clock_nanosleep: case SYS_pause: case SYS_rt_sigsuspend: case SYS_rt_sigtimedwait: case SYS_semtimedop:
		// Once may not do: a call that a stop interrupted is taken up again after the handler.
		while (!GET(b->ended)) {
			syscall(SYS_tgkill, getpid(), b->tid, SIGUSR2);
			sched_yield();
		}
	}
	pthread_join(b->t, NULL);
	close(b->fd[0]), close(b->fd[1]);
}

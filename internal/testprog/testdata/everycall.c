// Every system call that blocks, on everything that it can block on. "block" makes them all, each in a thread of its own, and waits until all that can wait do; "block parts" also some that have half of it;
// "settle" waits for that again. Then "event" gives each what it waits for, "signal" has each thread's handler run, "restart" one with SA_RESTART, and what goes on to wait then gets its event.
// Each of these says "ends NAME RESULT ERRNO" of all calls, and "did N". "long N" makes calls that take their time, N times; "whole" writes more than a pipe has room for and says how much, "drain" calls
// tcdrain(3); "cycle N PATH" loads a library and unloads it, N times. It makes none of these results up, so
// what a call can't do on a thing it refuses in its own words.
#include "prog.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>

enum { MAX = 512, FOREVER = 10000 }; // seconds
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wait
#define SYS_futex_wait 455
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

struct call {
	char name[64];
	long nr, a[6];
	void (*end)(struct call *);
	int fd[2], other[2]; // what it waits for, from its own side first; pipes beside
	int id, len, piece;
	unsigned word, other_word;
	pid_t child;
	char buf[256];
	struct iovec iov;
	struct mmsghdr msg, second; // which recvmmsg(2) is asked for together
	struct pollfd poll;
	struct timespec limit, until;
	struct timeval limit_val;
	struct epoll_event event;
	struct sembuf op;
	sigset_t set;
	fd_set fds;
	struct { void *set; size_t size; } mask;
	struct { long type; char text[8]; } text;
	struct iocb iocb;
	struct io_event done_event;
	struct io_uring_getevents_arg ring_arg;
	struct { uint64_t val, addr; uint32_t flags, reserved; } futexes;
	aio_context_t aio;
	siginfo_t info;

	pthread_t thread, helper;
	pid_t tid;
	long done, handled, result;
	int error;
};

static struct call calls[MAX];
static int count;
static char dir[32];
static __thread struct call *self;

REAL long foo(long v) { return 31 * v + 1; }

// moment lets others run.
static void moment(void)
{
	struct timespec t = { 0, 200000 };
	nanosleep(&t, NULL);
}

static struct call *add(const char *a, const char *b, long nr)
{
	CHECK(count < MAX);
	struct call *c = &calls[count++];
	memset(c, 0, sizeof *c);
	snprintf(c->name, sizeof c->name, "%s%s%s", a, *b ? "/" : "", b);
	c->nr = nr, c->len = 8, c->fd[0] = c->fd[1] = c->other[0] = c->other[1] = c->id = -1;
	c->limit.tv_sec = c->limit_val.tv_sec = FOREVER;
	clock_gettime(CLOCK_MONOTONIC, &c->until);
	c->until.tv_sec += FOREVER;
	c->iov = (struct iovec){ c->buf, c->len };
	c->msg.msg_hdr = (struct msghdr){ .msg_iov = &c->iov, .msg_iovlen = 1 };
	sigemptyset(&c->set);
	return c;
}

static void args(struct call *c, long a0, long a1, long a2, long a3, long a4, long a5)
{
	long a[] = { a0, a1, a2, a3, a4, a5 };
	memcpy(c->a, a, sizeof a);
}

// What is waited for.

enum kind { PIPE, STREAM, SEQPACKET, DGRAM, TCP, UDP, NETLINK, STREAM_TIMED, SEQPACKET_TIMED, DGRAM_TIMED, TCP_TIMED, UDP_TIMED, NETLINK_TIMED, EVENTFD, PTY, KINDS, TIMERFD = KINDS, SIGNALFD, INOTIFY, SOURCES };
static const char *const kinds[] = { "pipe", "stream", "seqpacket", "dgram", "tcp", "udp", "netlink", "stream-timed", "seqpacket-timed", "dgram-timed", "tcp-timed", "udp-timed", "netlink-timed", "eventfd", "pty", "timerfd", "signalfd", "inotify" };

static void inet_pair(int type, int fd[2])
{
	struct sockaddr_in at[2] = { { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof *at;
	int s[2], small = 4096;
	for (int i = 0; i < 2; i++) {
		CHECK((s[i] = socket(AF_INET, type, 0)) >= 0);
		setsockopt(s[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
		setsockopt(s[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
		CHECK(bind(s[i], (void *)&at[i], len) == 0 && getsockname(s[i], (void *)&at[i], &len) == 0);
	}
	if (type == SOCK_STREAM) {
		CHECK(listen(s[1], 1) == 0 && connect(s[0], (void *)&at[1], len) == 0);
		fd[0] = s[0];
		CHECK((fd[1] = accept(s[1], NULL, NULL)) >= 0);
		close(s[1]);
		return;
	}
	CHECK(connect(s[0], (void *)&at[1], len) == 0 && connect(s[1], (void *)&at[0], len) == 0);
	memcpy(fd, s, sizeof s);
}

static void netlink_pair(int fd[2])
{
	struct sockaddr_nl at[2];
	socklen_t len = sizeof *at;
	for (int i = 0; i < 2; i++) {
		at[i] = (struct sockaddr_nl){ .nl_family = AF_NETLINK };
		CHECK((fd[i] = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK)) >= 0);
		CHECK(bind(fd[i], (void *)&at[i], len) == 0 && getsockname(fd[i], (void *)&at[i], &len) == 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(connect(fd[i], (void *)&at[!i], len) == 0);
}

static void pty_pair(int fd[2])
{
	struct termios t;
	char name[64];
	CHECK((fd[1] = posix_openpt(O_RDWR | O_NOCTTY)) >= 0 && grantpt(fd[1]) == 0 && unlockpt(fd[1]) == 0 && ptsname_r(fd[1], name, sizeof name) == 0);
	CHECK((fd[0] = open(name, O_RDWR | O_NOCTTY)) >= 0 && tcgetattr(fd[0], &t) == 0);
	cfmakeraw(&t);
	t.c_cc[VMIN] = 8, t.c_cc[VTIME] = 0;
	CHECK(tcsetattr(fd[0], TCSANOW, &t) == 0);
}

static void open_kind(struct call *c, enum kind kind, int writes)
{
	struct timeval tv = { FOREVER, 0 };
	enum kind plain = kind >= STREAM_TIMED && kind <= NETLINK_TIMED ? kind - STREAM_TIMED + STREAM : kind;
	switch (plain) {
	case PIPE:
		CHECK(pipe(c->fd) == 0);
		if (writes) { // from its own side first
			int swap = c->fd[0];
			c->fd[0] = c->fd[1], c->fd[1] = swap;
			fcntl(c->fd[0], F_SETPIPE_SZ, 4096);
		}
		break;
	case STREAM: CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, c->fd) == 0); break;
	case SEQPACKET: CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, c->fd) == 0); break;
	case DGRAM: CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, c->fd) == 0); break;
	case TCP: inet_pair(SOCK_STREAM, c->fd); break;
	case UDP: inet_pair(SOCK_DGRAM, c->fd); break;
	case NETLINK: netlink_pair(c->fd); break;
	case EVENTFD: CHECK((c->fd[0] = eventfd(0, 0)) >= 0 && (c->fd[1] = dup(c->fd[0])) >= 0); break;
	case PTY: pty_pair(c->fd); break;
	case TIMERFD: CHECK((c->fd[0] = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0); break;
	case SIGNALFD:
		sigaddset(&c->set, SIGUSR1);
		CHECK((c->fd[0] = signalfd(-1, &c->set, 0)) >= 0);
		c->len = sizeof(struct signalfd_siginfo);
		break;
	case INOTIFY:
		snprintf(c->buf, sizeof c->buf, "%s/%d", dir, count);
		CHECK(mkdir(c->buf, 0700) == 0 && (c->fd[0] = inotify_init()) >= 0 && inotify_add_watch(c->fd[0], c->buf, IN_ATTRIB) >= 0);
		c->id = count, c->len = 64;
		break;
	default: CHECK(!"a known kind");
	}
	if (plain != kind)
		CHECK(setsockopt(c->fd[0], SOL_SOCKET, writes ? SO_SNDTIMEO : SO_RCVTIMEO, &tv, sizeof tv) == 0);
}

static void send_it(struct call *c)
{
	uint64_t one = 1;
	CHECK(write(c->fd[1], &one, sizeof one) == sizeof one);
}

static void end_source(struct call *c)
{
	if (c->fd[1] >= 0) {
		send_it(c);
	} else if (c->len == sizeof(struct signalfd_siginfo)) {
		CHECK(syscall(SYS_tgkill, getpid(), c->tid, SIGUSR1) == 0);
	} else if (c->id >= 0) {
		char name[64];
		snprintf(name, sizeof name, "%s/%d", dir, c->id);
		CHECK(chmod(name, 0500) == 0);
	} else {
		struct itimerspec now = { { 0 }, { 0, 1 } };
		CHECK(timerfd_settime(c->fd[0], 0, &now, NULL) == 0);
	}
}

static void nonblocking(int fd, int on)
{
	int flags = fcntl(fd, F_GETFL);
	CHECK(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

static void drain(struct call *c)
{
	static char junk[65536];
	nonblocking(c->fd[1], 1);
	while (!GET(c->done))
		if (read(c->fd[1], junk, sizeof junk) <= 0)
			moment();
}

// fill writes until no more can be, and tells whether anything could.
static int fill(struct call *c)
{
	static char junk[4096];
	int more = 0;
	nonblocking(c->fd[0], 1);
	for (; write(c->fd[0], junk, c->piece) > 0 || write(c->fd[0], junk, 1) > 0; more = 1)
		;
	nonblocking(c->fd[0], 0);
	return more;
}

// fill_all goes on as long as what is on its way makes room when it arrives.
static void fill_all(void)
{
	struct timespec arrival = { 0, 60000000 };
	for (int more = 1; more; nanosleep(&arrival, NULL)) {
		more = 0;
		for (int i = 0; i < count; i++)
			if (calls[i].piece && fill(&calls[i]))
				more = 1;
	}
}

static void open_full(struct call *c, enum kind kind)
{
	uint64_t most = UINT64_MAX - 1;
	int small = 4096;
	open_kind(c, kind, 1);
	setsockopt(c->fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	if (kind == EVENTFD)
		CHECK(write(c->fd[0], &most, sizeof most) == sizeof most);
	else
		c->piece = kind == DGRAM || kind == SEQPACKET || kind == DGRAM_TIMED || kind == SEQPACKET_TIMED ? 64 : 4096;
}

static void msg_args(struct call *c, long nr)
{
	if (nr == SYS_recvmmsg || nr == SYS_sendmmsg)
		args(c, c->fd[0], (long)&c->msg, 1, 0, 0, 0);
	else
		args(c, c->fd[0], (long)&c->msg.msg_hdr, 0, 0, 0, 0);
}

static void sources(void)
{
	static const struct { const char *name; long nr; } ways[] = {
		{ "read", SYS_read }, { "readv", SYS_readv }, { "preadv2", SYS_preadv2 }, { "recvfrom", SYS_recvfrom }, { "recvmsg", SYS_recvmsg },
		{ "recvmmsg", SYS_recvmmsg }, { "splice", SYS_splice }, { "tee", SYS_tee },
	};
	for (int k = 0; k < SOURCES; k++) {
		for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
			long nr = ways[w].nr;
			int socket = k >= STREAM && k <= NETLINK_TIMED;
			if (((nr == SYS_recvfrom || nr == SYS_recvmsg || nr == SYS_recvmmsg) && !socket) || (nr == SYS_tee && k != PIPE))
				continue;
			if (nr == SYS_splice && ((k >= EVENTFD && k != PTY) || k == NETLINK || k == NETLINK_TIMED))
				continue; // what a page is too much or too little for
			struct call *c = add(ways[w].name, kinds[k], nr);
			open_kind(c, k, 0);
			c->iov.iov_len = c->len;
			c->end = end_source;
			switch (nr) {
			case SYS_read: case SYS_recvfrom: args(c, c->fd[0], (long)c->buf, c->len, 0, 0, 0); break;
			case SYS_readv: args(c, c->fd[0], (long)&c->iov, 1, 0, 0, 0); break;
			case SYS_preadv2: args(c, c->fd[0], (long)&c->iov, 1, -1, -1, 0); break;
			case SYS_splice: CHECK(pipe(c->other) == 0); args(c, c->fd[0], 0, c->other[1], 0, 8, 0); break;
			case SYS_tee: CHECK(pipe(c->other) == 0); args(c, c->fd[0], c->other[1], 8, 0, 0, 0); break;
			default: msg_args(c, nr);
			}
		}
	}
}

static void sinks(void)
{
	static const struct { const char *name; long nr; } ways[] = {
		{ "write", SYS_write }, { "writev", SYS_writev }, { "pwritev2", SYS_pwritev2 }, { "sendto", SYS_sendto }, { "sendmsg", SYS_sendmsg },
		{ "sendmmsg", SYS_sendmmsg }, { "splice", SYS_splice }, { "tee", SYS_tee }, { "vmsplice", SYS_vmsplice }, { "sendfile", SYS_sendfile },
	};
	for (int k = 0; k < KINDS; k++) {
		if (k == UDP || k == UDP_TIMED || k == NETLINK || k == NETLINK_TIMED) // which drop
			continue;
		for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
			long nr = ways[w].nr;
			int socket = k >= STREAM && k <= NETLINK_TIMED;
			if (((nr == SYS_sendto || nr == SYS_sendmsg || nr == SYS_sendmmsg) && !socket) || ((nr == SYS_tee || nr == SYS_vmsplice) && k != PIPE))
				continue;
			if (k == EVENTFD && nr == SYS_sendfile)
				continue;
			struct call *c = add(ways[w].name, kinds[k], nr);
			strcpy(c->name + strlen(c->name), "-full");
			open_full(c, k);
			c->buf[0] = 1; // which an eventfd has no room for
			c->end = drain;
			if (nr == SYS_splice || nr == SYS_tee)
				CHECK(pipe(c->other) == 0 && write(c->other[1], c->buf, 8) == 8);
			if (nr == SYS_sendfile)
				CHECK((c->other[0] = memfd_create("file", 0)) >= 0 && write(c->other[0], c->buf, 8) == 8 && lseek(c->other[0], 0, SEEK_SET) == 0);
			switch (nr) {
			case SYS_write: case SYS_sendto: args(c, c->fd[0], (long)c->buf, 8, 0, 0, 0); break;
			case SYS_writev: case SYS_vmsplice: args(c, c->fd[0], (long)&c->iov, 1, 0, 0, 0); break;
			case SYS_pwritev2: args(c, c->fd[0], (long)&c->iov, 1, -1, -1, 0); break;
			case SYS_splice: args(c, c->other[0], 0, c->fd[0], 0, 8, 0); break;
			case SYS_tee: args(c, c->other[0], c->fd[0], 8, 0, 0, 0); break;
			case SYS_sendfile: args(c, c->fd[0], c->other[0], 0, 8, 0, 0); break;
			default: msg_args(c, nr);
			}
		}
	}
}

// parts are calls that have some of what they are to wait for. The program asks once more for the rest, as programs do.
static void parts(void)
{
	static const enum kind ways[] = { DGRAM, UDP, SEQPACKET, DGRAM_TIMED, UDP_TIMED, SEQPACKET_TIMED };
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		struct call *c = add("recvmmsg-part", kinds[ways[i]], SYS_recvmmsg);
		open_kind(c, ways[i], 0);
		c->second = c->msg;
		c->end = end_source;
		send_it(c);
		args(c, c->fd[0], (long)&c->msg, 2, 0, 0, 0);
	}
}

// Waits for events.

static struct call *on_event(const char *name, const char *how, long nr)
{
	struct call *c = add(name, how, nr);
	open_kind(c, EVENTFD, 0);
	c->end = send_it;
	c->poll = (struct pollfd){ c->fd[0], POLLIN, 0 };
	FD_ZERO(&c->fds);
	FD_SET(c->fd[0], &c->fds);
	return c;
}

static void epolls(const char *how, long msec, int timed)
{
	static const struct { const char *name; long nr; } ways[] = { { "epoll_wait", SYS_epoll_wait }, { "epoll_pwait", SYS_epoll_pwait }, { "epoll_pwait2", SYS_epoll_pwait2 } };
	for (int i = 0; i < 3; i++) {
		struct call *c = on_event(ways[i].name, how, ways[i].nr);
		struct epoll_event e = { EPOLLIN, { 0 } };
		CHECK((c->other[0] = epoll_create1(0)) >= 0 && epoll_ctl(c->other[0], EPOLL_CTL_ADD, c->fd[0], &e) == 0);
		args(c, c->other[0], (long)&c->event, 1, i < 2 ? msec : timed ? (long)&c->limit : 0, i ? (long)&c->set : 0, 8);
	}
}

static void waits(int timed)
{
	const char *how = timed ? "timed" : "";
	long msec = timed ? FOREVER * 1000 : -1;
	struct call *c = on_event("poll", how, SYS_poll);
	args(c, (long)&c->poll, 1, msec, 0, 0, 0);
	c = on_event("ppoll", how, SYS_ppoll);
	args(c, (long)&c->poll, 1, timed ? (long)&c->limit : 0, (long)&c->set, 8, 0);
	c = on_event("select", how, SYS_select);
	args(c, c->fd[0] + 1, (long)&c->fds, 0, 0, timed ? (long)&c->limit_val : 0, 0);
	c = on_event("pselect6", how, SYS_pselect6);
	c->mask.set = &c->set, c->mask.size = 8;
	args(c, c->fd[0] + 1, (long)&c->fds, 0, 0, timed ? (long)&c->limit : 0, (long)&c->mask);
	epolls(how, msec, timed);
}

static void aio_waits(int timed)
{
	static const struct { const char *name; long nr; } ways[] = { { "io_getevents", SYS_io_getevents }, { "io_pgetevents", SYS_io_pgetevents } };
	for (int i = 0; i < 2; i++) {
		aio_context_t aio = 0;
		if (syscall(SYS_io_setup, 1, &aio))
			return; // a kernel without it
		struct call *c = on_event(ways[i].name, timed ? "timed" : "", ways[i].nr);
		struct iocb *one = &c->iocb;
		c->aio = aio;
		c->iocb = (struct iocb){ .aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = c->fd[0], .aio_buf = POLLIN };
		CHECK(syscall(SYS_io_submit, aio, 1, &one) == 1);
		args(c, aio, 1, 1, (long)&c->done_event, timed ? (long)&c->limit : 0, 0);
	}
}

static void ring_wait(int timed)
{
	struct io_uring_params p = { 0 };
	int fd = syscall(SYS_io_uring_setup, 1, &p);
	if (fd < 0)
		return;
	struct call *c = on_event("io_uring_enter", timed ? "timed" : "", SYS_io_uring_enter);
	char *sq = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
	CHECK(sq != MAP_FAILED && sqe != MAP_FAILED);
	*sqe = (struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = c->fd[0], .poll32_events = POLLIN };
	((unsigned *)(sq + p.sq_off.array))[0] = 0;
	SET(*(unsigned *)(sq + p.sq_off.tail), 1);
	CHECK(syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0) == 1);
	munmap(sq, 4096), munmap(sqe, 4096);
	c->other[0] = fd;
	c->ring_arg.ts = (unsigned long)&c->limit;
	if (timed)
		args(c, fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, (long)&c->ring_arg, sizeof c->ring_arg);
	else
		args(c, fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
}

// Waits for others.

static void wake(struct call *c)
{
	SET(c->word, 0);
	CHECK(syscall(SYS_futex, &c->word, FUTEX_WAKE, 1) == 1);
}

static void unlock(struct call *c) { CHECK(syscall(SYS_futex, &c->word, FUTEX_UNLOCK_PI) == 0); }

// requeue hands a waiter on to a lock that nobody has, which is then its own.
static void requeue(struct call *c) { CHECK(syscall(SYS_futex, &c->word, FUTEX_CMP_REQUEUE_PI, 1, 0L, &c->other_word, 7) == 1); }

static void wake_new(struct call *c)
{
	SET(c->word, 0);
	CHECK(syscall(SYS_futex_wait - 1, &c->word, 0xffffffffL, 1, 2) == 1); // futex_wake
}

static void new_futexes(void)
{
	for (int timed = 0; timed < 2; timed++) {
		struct call *c = add("futex", timed ? "requeue_pi-timed" : "requeue_pi", SYS_futex);
		c->word = 7, c->end = requeue;
		args(c, (long)&c->word, FUTEX_WAIT_REQUEUE_PI, 7, timed ? (long)&c->until : 0, (long)&c->other_word, 0);
		c = add("futex_wait", timed ? "timed" : "", SYS_futex_wait);
		c->word = 7, c->end = wake_new;
		args(c, (long)&c->word, 7, 0xffffffffL, 2, timed ? (long)&c->until : 0, CLOCK_MONOTONIC); // 32 bits
	}
}

static void futexes(void)
{
	static const struct { const char *name; int op; int timed; } ways[] = {
		{ "wait", FUTEX_WAIT, 0 }, { "wait-timed", FUTEX_WAIT, 1 }, { "bitset", FUTEX_WAIT_BITSET, 0 }, { "bitset-timed", FUTEX_WAIT_BITSET, 2 },
		{ "lock_pi", FUTEX_LOCK_PI, 0 }, { "lock_pi-timed", FUTEX_LOCK_PI, 3 },
	};
	struct call *c;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		c = add("futex", ways[i].name, SYS_futex);
		int pi = ways[i].op == FUTEX_LOCK_PI;
		struct timespec *limit[] = { NULL, &c->limit, &c->until, &c->until };
		if (ways[i].timed == 3) // of the clock that tells the time of day
			clock_gettime(CLOCK_REALTIME, &c->until), c->until.tv_sec += FOREVER;
		c->word = pi ? syscall(SYS_gettid) : 7;
		c->end = pi ? unlock : wake;
		args(c, (long)&c->word, ways[i].op, 7, (long)limit[ways[i].timed], 0, ways[i].op == FUTEX_WAIT_BITSET ? -1 : 0);
	}
	c = add("futex_waitv", "", SYS_futex_waitv);
	c->word = 7, c->futexes.val = 7, c->futexes.addr = (uintptr_t)&c->word, c->futexes.flags = 2; // 32 bits
	c->end = wake;
	args(c, (long)&c->futexes, 1, 0, 0, 0, 0);
}

static void post(struct call *c)
{
	struct sembuf up = { 0, 1, 0 };
	CHECK(semop(c->id, &up, 1) == 0);
}

static void put(struct call *c)
{
	struct { long type; char text[8]; } m = { 1, "" };
	CHECK(msgsnd(c->id, &m, sizeof m.text, 0) == 0);
}

static void take(struct call *c)
{
	static struct { long type; char text[8192]; } m;
	CHECK(msgrcv(c->id, &m, sizeof m.text, 0, 0) > 0);
}

static void sysv(void)
{
	for (int timed = 0; timed < 3; timed++) {
		struct call *c = add(timed ? "semtimedop" : "semop", timed == 2 ? "timed" : "", timed ? SYS_semtimedop : SYS_semop);
		CHECK((c->id = semget(IPC_PRIVATE, 1, 0600)) >= 0);
		c->op = (struct sembuf){ 0, -1, 0 }, c->end = post;
		args(c, c->id, (long)&c->op, 1, timed == 2 ? (long)&c->limit : 0, 0, 0);
	}
	struct call *c = add("msgrcv", "", SYS_msgrcv);
	CHECK((c->id = msgget(IPC_PRIVATE, 0600)) >= 0);
	c->end = put;
	args(c, c->id, (long)&c->text, 8, 0, 0, 0);
	c = add("msgsnd", "", SYS_msgsnd);
	CHECK((c->id = msgget(IPC_PRIVATE, 0600)) >= 0);
	static struct { long type; char text[8192]; } m = { 1 };
	while (msgsnd(c->id, &m, sizeof m.text, IPC_NOWAIT) == 0)
		;
	c->text.type = 1, c->end = take;
	args(c, c->id, (long)&m, sizeof m.text, 0, 0, 0);
}

static void mq_put(struct call *c) { CHECK(mq_send(c->fd[0], "x", 1, 0) == 0); }

static void mq_take(struct call *c)
{
	char b[8];
	CHECK(mq_receive(c->fd[0], b, sizeof b, NULL) == 1);
}

static void queues(void)
{
	struct mq_attr a = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	for (int i = 0; i < 4; i++) {
		char name[32];
		snprintf(name, sizeof name, "/everycall-%d-%d", getpid(), i);
		int q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &a);
		if (q < 0)
			return;
		mq_unlink(name);
		struct call *c = add(i & 1 ? "mq_timedsend" : "mq_timedreceive", i & 2 ? "timed" : "", i & 1 ? SYS_mq_timedsend : SYS_mq_timedreceive);
		clock_gettime(CLOCK_REALTIME, &c->until), c->until.tv_sec += FOREVER;
		if (i & 1)
			CHECK(mq_send(q, "x", 1, 0) == 0);
		c->fd[0] = q, c->end = i & 1 ? mq_take : mq_put;
		args(c, q, (long)c->buf, i & 1 ? 1 : 8, 0, i & 2 ? (long)&c->until : 0, 0);
	}
}

static void raise_it(struct call *c) { CHECK(syscall(SYS_tgkill, getpid(), c->tid, SIGUSR1) == 0); }
static void handle_it(struct call *c) { CHECK(syscall(SYS_tgkill, getpid(), c->tid, SIGRTMIN) == 0); }

static void signals(void)
{
	for (int timed = 0; timed < 2; timed++) {
		struct call *c = add("rt_sigtimedwait", timed ? "timed" : "", SYS_rt_sigtimedwait);
		sigaddset(&c->set, SIGUSR1);
		c->end = raise_it;
		args(c, (long)&c->set, (long)&c->info, timed ? (long)&c->limit : 0, 8, 0, 0);
	}
	struct call *c = add("pause", "", SYS_pause);
	c->end = handle_it;
	c = add("rt_sigsuspend", "", SYS_rt_sigsuspend);
	c->end = handle_it;
	args(c, (long)&c->set, 8, 0, 0, 0, 0);
	static const struct { const char *name; long nr, clock, flags; } sleeps[] = {
		{ "nanosleep", SYS_nanosleep }, { "monotonic", SYS_clock_nanosleep, CLOCK_MONOTONIC, 0 }, { "realtime", SYS_clock_nanosleep, CLOCK_REALTIME, 0 },
		{ "boottime", SYS_clock_nanosleep, CLOCK_BOOTTIME, 0 }, { "until", SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME }, { "cputime", SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0 },
	};
	for (size_t i = 0; i < sizeof sleeps / sizeof *sleeps; i++) {
		c = add("sleep", sleeps[i].name, sleeps[i].nr);
		c->end = handle_it;
		struct timespec *t = sleeps[i].flags ? &c->until : &c->limit;
		if (i)
			args(c, sleeps[i].clock, sleeps[i].flags, (long)t, 0, 0, 0);
		else
			args(c, (long)t, 0, 0, 0, 0, 0);
	}
}

// let_go ends the child, or has it let go what it holds, by the end of a pipe.
static void let_go(struct call *c)
{
	close(c->other[1]);
	c->other[1] = -1;
}

static void child(struct call *c, int lock)
{
	int ready[2];
	char b;
	CHECK(pipe2(c->other, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
	c->end = let_go;
	if ((c->child = fork()) == 0) {
		struct flock all = { .l_type = F_WRLCK };
		for (int i = 0; i < count; i++)
			if (calls[i].other[1] >= 0) // of this call and others
				close(calls[i].other[1]);
		if (lock)
			fcntl(c->fd[0], F_SETLK, &all);
		close(ready[1]);
		while (read(c->other[0], &b, 1) > 0) {
		}
		_exit(7);
	}
	CHECK(c->child > 0);
	close(ready[1]);
	CHECK(read(ready[0], &b, 1) == 0);
	close(ready[0]);
}

static void children(void)
{
	struct call *c = add("wait4", "", SYS_wait4);
	child(c, 0);
	args(c, c->child, 0, 0, 0, 0, 0);
	for (int pidfd = 0; pidfd < 2; pidfd++) {
		c = add("waitid", pidfd ? "pidfd" : "", SYS_waitid);
		child(c, 0);
		if (pidfd)
			c->id = syscall(SYS_pidfd_open, c->child, 0);
		args(c, pidfd ? 3 : P_PID, pidfd ? c->id : c->child, (long)&c->info, WEXITED, 0, 0);
	}
	c = add("poll", "pidfd", SYS_poll);
	child(c, 0);
	c->poll = (struct pollfd){ syscall(SYS_pidfd_open, c->child, 0), POLLIN, 0 };
	args(c, (long)&c->poll, 1, -1, 0, 0, 0);
}

static void unflock(struct call *c) { CHECK(flock(c->fd[1], LOCK_UN) == 0); }

static void unlock_ofd(struct call *c)
{
	struct flock all = { .l_type = F_UNLCK };
	CHECK(fcntl(c->fd[1], F_OFD_SETLK, &all) == 0);
}

static void locks(void)
{
	static struct flock all = { .l_type = F_WRLCK };
	for (int i = 0; i < 3; i++) {
		char name[64];
		struct call *c = add(i ? "fcntl" : "flock", i == 2 ? "ofd" : "", i ? SYS_fcntl : SYS_flock);
		snprintf(name, sizeof name, "%s/lock", dir);
		for (int j = 0; j < 2; j++)
			CHECK((c->fd[j] = open(name, O_RDWR | O_CREAT, 0600)) >= 0);
		unlink(name);
		if (i == 0) {
			snprintf(name, sizeof name, "/proc/self/fd/%d", c->fd[0]);
			close(c->fd[1]);
			CHECK((c->fd[1] = open(name, O_RDWR)) >= 0 && flock(c->fd[1], LOCK_EX) == 0);
			c->end = unflock;
			args(c, c->fd[0], LOCK_EX, 0, 0, 0, 0);
		} else if (i == 1) {
			child(c, 1);
			args(c, c->fd[0], F_SETLKW, (long)&all, 0, 0, 0);
		} else {
			CHECK(fcntl(c->fd[1], F_OFD_SETLK, &all) == 0);
			c->end = unlock_ofd;
			args(c, c->fd[0], F_OFD_SETLKW, (long)&all, 0, 0, 0);
		}
	}
}

static void open_too(struct call *c)
{
	CHECK((c->fd[0] = open(c->buf, O_RDWR)) >= 0);
	while (!GET(c->done)) // until that has seen us
		moment();
}

// lease_ends lets the one who waits open a file.
static void lease_ends(struct call *c) { CHECK(fcntl(c->fd[1], F_SETLEASE, F_UNLCK) == 0); }

static void leased(void)
{
	struct call *c = add("open", "leased", SYS_open);
	snprintf(c->buf, sizeof c->buf, "%s/leased", dir);
	CHECK((c->fd[1] = open(c->buf, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0 && fcntl(c->fd[1], F_SETSIG, SIGURG) == 0);
	if (fcntl(c->fd[1], F_SETLEASE, F_WRLCK)) { // a filesystem without
		close(c->fd[1]);
		count--;
		return;
	}
	c->end = lease_ends;
	args(c, (long)c->buf, O_RDONLY, 0, 0, 0, 0);
}

// notifier has a filter that asks the program's supervisor about getppid(2).
static void *notifier(void *arg)
{
	struct call *c = arg;
	struct sock_filter one[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { sizeof one / sizeof *one, one };
	char b;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	int fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &p);
	CHECK(fd >= 0);
	SET(c->fd[0], fd);
	while (read(c->other[0], &b, 1) < 0)
		;
	CHECK(syscall(SYS_getppid) == -1 && errno == ENOSYS); // which the end of the supervisor makes of it
	return NULL;
}

static void ask(struct call *c) { CHECK(write(c->other[1], "", 1) == 1); }

static void supervisor(void)
{
	struct call *c = add("ioctl", "seccomp", SYS_ioctl);
	CHECK(pipe2(c->other, O_CLOEXEC) == 0);
	c->end = ask;
	CHECK(pthread_create(&c->helper, NULL, notifier, c) == 0);
	while (GET(c->fd[0]) < 0)
		moment();
	args(c, c->fd[0], SECCOMP_IOCTL_NOTIF_RECV, (long)c->buf, 0, 0, 0);
}

static void fifos(void)
{
	for (int writes = 0; writes < 2; writes++)
		for (int at = 0; at < 2; at++) {
			struct call *c = add(at ? "openat" : "open", writes ? "write" : "read", at ? SYS_openat : SYS_open);
			snprintf(c->buf, sizeof c->buf, "%s/fifo%d", dir, count);
			CHECK(mkfifo(c->buf, 0600) == 0);
			c->end = open_too;
			long flags = writes ? O_WRONLY : O_RDONLY;
			if (at)
				args(c, AT_FDCWD, (long)c->buf, flags, 0, 0, 0);
			else
				args(c, (long)c->buf, flags, 0, 0, 0, 0);
		}
}

static void reach(struct call *c)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof at;
	CHECK(getsockname(c->fd[0], (void *)&at, &len) == 0);
	CHECK((c->fd[1] = socket(at.ss_family, SOCK_STREAM, 0)) >= 0 && connect(c->fd[1], (void *)&at, len) == 0);
}

static void welcome(struct call *c)
{
	struct pollfd p = { c->fd[1], POLLIN, 0 };
	nonblocking(c->fd[1], 1);
	while (!GET(c->done)) {
		int s = poll(&p, 1, 1) > 0 ? accept(c->fd[1], NULL, NULL) : -1;
		if (s >= 0)
			close(s);
	}
}

static int listener(int domain, int backlog)
{
	struct sockaddr_un un = { AF_UNIX, "" };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(domain, SOCK_STREAM, 0);
	CHECK(s >= 0 && bind(s, domain == AF_UNIX ? (void *)&un : (void *)&in, domain == AF_UNIX ? sizeof(sa_family_t) : sizeof in) == 0 && listen(s, backlog) == 0);
	return s;
}

static void meetings(void)
{
	static struct { struct sockaddr_storage at; socklen_t len; } to[4];
	for (int i = 0; i < 4; i++) {
		int domain = i & 1 ? AF_INET : AF_UNIX;
		struct timeval tv = { FOREVER, 0 };
		int often = 1000, most = 127;
		char how[32];
		snprintf(how, sizeof how, "%s%s", i & 1 ? "tcp" : "unix", i & 2 ? "-timed" : "");
		for (int four = 0; four < 2; four++) {
			struct call *c = add(four ? "accept4" : "accept", how, four ? SYS_accept4 : SYS_accept);
			c->fd[0] = listener(domain, 4), c->end = reach;
			if (i & 2)
				CHECK(setsockopt(c->fd[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
			args(c, c->fd[0], 0, 0, 0, 0, 0);
		}
		struct call *c = add("connect", how, SYS_connect);
		c->fd[1] = listener(domain, 0), c->end = welcome;
		to[i].len = sizeof to[i].at;
		CHECK(getsockname(c->fd[1], (void *)&to[i].at, &to[i].len) == 0);
		for (int full = 0; !full;) { // its queue, and nobody is there to accept
			int s = socket(domain, SOCK_STREAM | SOCK_NONBLOCK, 0);
			full = connect(s, (void *)&to[i].at, to[i].len) != 0 && errno == EAGAIN;
			if (domain == AF_INET) {
				struct pollfd p = { s, POLLOUT, 0 };
				full = poll(&p, 1, 20) == 0;
			}
			c->other[0] = s; // the last; others wait in the queue
		}
		CHECK((c->fd[0] = socket(domain, SOCK_STREAM, 0)) >= 0);
		CHECK(setsockopt(c->fd[0], IPPROTO_TCP, TCP_SYNCNT, &most, sizeof most) == 0 || domain == AF_UNIX);
		setsockopt(c->fd[0], IPPROTO_TCP, 44, &often, sizeof often); // TCP_RTO_MAX_MS: it asks again each second, if the kernel can (Linux 6.15)
		if (i & 2)
			CHECK(setsockopt(c->fd[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
		args(c, c->fd[0], (long)&to[i].at, to[i].len, 0, 0, 0);
	}
}

// The threads.

static void on_signal(int sig) { ADD(self->handled, 1); }

static void *worker(void *arg)
{
	struct call *c = self = arg;
	SET(c->tid, syscall(SYS_gettid));
	errno = 0;
	c->result = syscall(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
	if (c->nr == SYS_recvmmsg && c->a[2] == 2 && c->result == 1) {
		c->result = syscall(c->nr, c->a[0], &c->second, 1, 0, 0, 0);
		c->result += c->result >= 0;
	}
	c->error = c->result < 0 ? errno : 0;
	CHECK(foo(c->result) == 31 * c->result + 1);
	SET(c->done, 1);
	return NULL;
}

static int reads(int tid, const char *what, char *into, int size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, what);
	int fd = open(path, O_RDONLY), n = fd < 0 ? 0 : read(fd, into, size - 1);
	close(fd);
	into[n > 0 ? n : 0] = 0;
	return n > 0;
}

// waits_in tells that a thread sleeps in its call.
static int waits_in(struct call *c)
{
	char text[512], *end;
	return GET(c->tid) && reads(c->tid, "stat", text, sizeof text) && (end = strrchr(text, ')')) && end[2] == 'S' && reads(c->tid, "syscall", text, sizeof text) && strncmp(text, "run", 3) && (atol(text) == c->nr || atol(text) == SYS_restart_syscall);
}

static void settle(void)
{
	for (int i = 0; i < count; i++)
		while (!GET(calls[i].done) && !waits_in(&calls[i]))
			moment();
}

static void block(int in_part)
{
	pthread_attr_t small;
	count = 0;
	sources(), sinks();
	for (int timed = 0; timed < 2; timed++)
		waits(timed), aio_waits(timed), ring_wait(timed);
	futexes(), new_futexes(), sysv(), queues(), signals(), children(), locks(), fifos(), leased(), supervisor(), meetings();
	if (in_part)
		parts();
	fill_all();
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int i = 0; i < count; i++)
		if (pthread_create(&calls[i].thread, &small, worker, &calls[i]))
			_exit(98);
	settle();
}

static void clean(struct call *c)
{
	for (int i = 0; i < 2; i++) {
		if (c->fd[i] >= 0)
			close(c->fd[i]);
		if (c->other[i] >= 0)
			close(c->other[i]);
	}
	if (c->len == 64) { // a directory that is watched
		char name[64];
		snprintf(name, sizeof name, "%s/%d", dir, c->id);
		rmdir(name);
	}
	if (c->helper)
		pthread_join(c->helper, NULL);
	if (c->child > 0)
		waitpid(c->child, NULL, 0);
	if (c->nr == SYS_semop || c->nr == SYS_semtimedop)
		semctl(c->id, 0, IPC_RMID);
	if (c->nr == SYS_msgrcv || c->nr == SYS_msgsnd)
		msgctl(c->id, IPC_RMID, NULL);
	if (c->nr == SYS_openat || c->nr == SYS_open) {
		unlink(c->buf);
		if (c->result >= 0)
			close(c->result), c->result = 0; // a number like any
	}
	if (c->nr == SYS_accept || c->nr == SYS_accept4)
		if (c->result >= 0)
			close(c->result), c->result = 0;
	if (c->nr == SYS_wait4 && c->result > 0)
		c->result = 0;
	if (c->aio)
		syscall(SYS_io_destroy, c->aio);
	if (c->nr == SYS_poll && c->child)
		close(c->poll.fd);
}

static void end(int flags, int by_signal)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };
	CHECK(sigaction(SIGRTMIN, &sa, NULL) == 0);
	for (int i = 0; by_signal && i < count; i++)
		if (!GET(calls[i].done))
			handle_it(&calls[i]);
	for (int i = 0; i < count; i++) {
		struct call *c = &calls[i];
		while (by_signal && !GET(c->done) && !(GET(c->handled) && waits_in(c)))
			moment();
		if (!GET(c->done))
			c->end(c);
		pthread_join(c->thread, NULL);
		clean(c);
	}
	for (int i = 0; i < count; i++)
		say("ends %s %ld %d", calls[i].name, calls[i].result, calls[i].error);
	say("did %d", count);
}

// What takes time fails when it is interrupted, too.
static void longs(long n)
{
	int fd = memfd_create("long", 0);
	for (long i = 0; i < n; i++) {
		CHECK(syscall(SYS_fallocate, fd, 0, 0L, 16L << 20) == 0);
		CHECK(ftruncate(fd, 0) == 0);
	}
	close(fd);
}

enum { WHOLE = 1 << 20 };

static void *read_whole(void *fd)
{
	static char into[65536];
	for (long n = 0, r; n < WHOLE; n += r)
		if ((r = read((int)(long)fd, into, sizeof into)) <= 0)
			break;
	return NULL;
}

// whole writes more than a pipe has room for, by one call.
static void whole(void)
{
	static char from[WHOLE];
	int fd[2];
	CHECK(pipe(fd) == 0);
	pthread_t t = thread(read_whole, fd[0]);
	long n = write(fd[1], from, sizeof from);
	close(fd[1]);
	pthread_join(t, NULL);
	close(fd[0]);
	say("did %ld", n);
}

// cycle loads a library and unloads it.
static void cycle(long n, const char *path)
{
	while (n-- > 0) {
		void *lib = dlopen(path, RTLD_NOW);
		CHECK(lib != NULL && dlclose(lib) == 0);
	}
}

static void drains(void)
{
	int fd[2];
	pty_pair(fd);
	CHECK(tcdrain(fd[0]) == 0);
	close(fd[0]), close(fd[1]);
}

int main(void)
{
	char line[512], path[512];
	long n;
	sigset_t set;
	struct sigaction sa = { .sa_handler = on_signal };
	sigemptyset(&set), sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && sigaction(SIGRTMIN, &sa, NULL) == 0);
	strcpy(dir, "/tmp/everycallXXXXXX");
	CHECK(mkdtemp(dir) != NULL);
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "block\n"))
			block(0), say("did %d", count);
		else if (!strcmp(line, "block parts\n"))
			block(1), say("did %d", count);
		else if (!strcmp(line, "settle\n"))
			settle(), say("did %d", count);
		else if (!strcmp(line, "event\n"))
			end(0, 0);
		else if (!strcmp(line, "signal\n"))
			end(0, 1);
		else if (!strcmp(line, "restart\n"))
			end(SA_RESTART, 1);
		else if (sscanf(line, "long %ld", &n) == 1)
			longs(n), say("did %ld", n);
		else if (sscanf(line, "cycle %ld %511s", &n, path) == 2)
			cycle(n, path), say("did %ld", n);
		else if (!strcmp(line, "whole\n"))
			whole();
		else if (!strcmp(line, "drain\n"))
			drains(), say("did");
		else
			CHECK(!"a known command");
	}
	char command[64];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	CHECK(system(command) == 0);
	return verdict();
}

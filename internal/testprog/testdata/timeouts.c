// System calls with timeouts. "wait NAME" makes one that nothing ends before its time, and says what it returned; "waits" is their
// names. "events N" waits N times for events that come before the time is over, and "sleeps N" for nothing. Argument 1 is a seccomp filter on
// restart_syscall(2): "process", "thread", "trap", "errno", "notify", or "list", which kills for all but some calls.
#include "prog.h"
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define MSEC 100
REAL long foo(long v) { return 23 * v + 1; }

static struct timespec *ro; // MSEC, in memory that can't be written
static struct timeval *ro_val;
static int ep, event, pair[2], tube[2], file, listener, sem, aio_ok;
static aio_context_t aio;
static struct sockaddr_un address = { AF_UNIX, "\0" };
static socklen_t address_len;

static const char *names = "epoll_wait epoll_pwait epoll_pwait2 semtimedop sigtimedwait io_getevents io_pgetevents recv recvmsg read accept send connect "
			   "select pselect ppoll poll nanosleep clock_nanosleep sleep_until futex futex_until preadv2 pwritev2 splice splice_out sendfile";

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void setup(void)
{
	struct timeval tv = { 0, MSEC * 1000 };
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), junk[4096] = { 0 };
	ro = (struct timespec *)page, ro_val = (struct timeval *)(page + 64);
	ro->tv_nsec = MSEC * 1000000, ro_val->tv_usec = MSEC * 1000;
	CHECK(mprotect(page, 4096, PROT_READ) == 0);
	CHECK((ep = epoll_create1(0)) >= 0 && (event = eventfd(0, EFD_SEMAPHORE)) >= 0);
	struct epoll_event e = { EPOLLIN, { 0 } };
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, event, &e) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	while (send(pair[0], junk, sizeof junk, MSG_DONTWAIT) > 0)
		; // pair[0] can send no more, and receives nothing
	CHECK(pipe(tube) == 0 && write(tube[1], junk, 1) == 1 && (file = memfd_create("file", 0)) >= 0 && write(file, junk, 1) == 1 && lseek(file, 0, SEEK_SET) == 0);
	CHECK((sem = semget(IPC_PRIVATE, 1, 0600)) >= 0);
	CHECK((listener = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0);
	CHECK(bind(listener, (void *)&address, sizeof(sa_family_t)) == 0 && listen(listener, 0) == 0); // a name of the kernel's
	address_len = sizeof address;
	CHECK(getsockname(listener, (void *)&address, &address_len) == 0);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
	aio_ok = syscall(SYS_io_setup, 4, &aio) == 0;
}

static long connects(void)
{
	struct timeval tv = { 0, MSEC * 1000 };
	long r;
	do {
		int s = socket(AF_UNIX, SOCK_STREAM, 0);
		setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
		r = connect(s, (void *)&address, address_len);
	} while (r == 0); // until the queue is full
	return r;
}

static long accepts(void)
{
	struct timeval tv = { 0, MSEC * 1000 };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un any = { AF_UNIX, "" };
	CHECK(bind(s, (void *)&any, sizeof(sa_family_t)) == 0 && listen(s, 0) == 0);
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	return accept(s, NULL, NULL);
}

// coarse is the clock of the kernel's ticks, in which it counts the timeouts of sockets. On a machine that is busy they lag behind, and then such a
// timeout is over before its time by the other clock.
static long coarse(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static long wait_in(const char *name)
{
	struct epoll_event e;
	struct sembuf op = { 0, -1, 0 };
	struct iovec iov;
	struct msghdr msg = { 0 };
	struct io_event done;
	struct timespec until;
	sigset_t set;
	unsigned word = 7;
	char b = 0;
	iov = (struct iovec){ &b, 1 };
	sigemptyset(&set), sigaddset(&set, SIGUSR2);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += MSEC * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
#define IS(s) (!strcmp(name, s))
	return IS("epoll_wait")	     ? epoll_wait(ep, &e, 1, MSEC) :
	       IS("epoll_pwait")     ? epoll_pwait(ep, &e, 1, MSEC, &set) :
	       IS("epoll_pwait2")    ? syscall(SYS_epoll_pwait2, ep, &e, 1, ro, NULL, 8) :
	       IS("semtimedop")	     ? semtimedop(sem, &op, 1, ro) :
	       IS("sigtimedwait")    ? syscall(SYS_rt_sigtimedwait, &set, NULL, ro, 8) :
	       IS("io_getevents")    ? (aio_ok ? syscall(SYS_io_getevents, aio, 1, 1, &done, ro) : 0) :
	       IS("io_pgetevents")   ? (aio_ok ? syscall(SYS_io_pgetevents, aio, 1, 1, &done, ro, NULL) : 0) :
	       IS("recv")	     ? recv(pair[0], &b, 1, 0) :
	       IS("recvmsg")	     ? recvmsg(pair[0], &msg, 0) :
	       IS("read")	     ? read(pair[0], &b, 1) :
	       IS("preadv2")	     ? syscall(SYS_preadv2, pair[0], &iov, 1, -1L, -1L, 0) :
	       IS("pwritev2")	     ? syscall(SYS_pwritev2, pair[0], &iov, 1, -1L, -1L, 0) :
	       IS("splice")	     ? splice(pair[0], NULL, tube[1], NULL, 1, 0) :
	       IS("splice_out")	     ? splice(tube[0], NULL, pair[0], NULL, 1, 0) :
	       IS("sendfile")	     ? sendfile(pair[0], file, NULL, 1) :
	       IS("accept")	     ? accepts() :
	       IS("send")	     ? send(pair[0], &b, 1, 0) :
	       IS("connect")	     ? connects() :
	       IS("select")	     ? syscall(SYS_select, 0, NULL, NULL, NULL, ro_val) :
	       IS("pselect")	     ? syscall(SYS_pselect6, 0, NULL, NULL, NULL, ro, NULL) :
	       IS("ppoll")	     ? syscall(SYS_ppoll, NULL, 0, ro, NULL, 8) :
	       IS("poll")	     ? syscall(SYS_poll, NULL, 0, MSEC) :
	       IS("nanosleep")	     ? syscall(SYS_nanosleep, ro, NULL) :
	       IS("clock_nanosleep") ? syscall(SYS_clock_nanosleep, CLOCK_BOOTTIME, 0, ro, NULL) :
	       IS("sleep_until")     ? syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) :
	       IS("futex")	     ? syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, ro, NULL, 0) :
	       IS("futex_until")     ? syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 7, &until, NULL, ~0u) :
				       (errno = ENOSYS, -99L);
}

static void *make_events(void *n)
{
	struct timespec third = { 0, MSEC * 1000000 / 3 };
	for (long i = 0; i < (long)n; i++) {
		nanosleep(&third, NULL);
		CHECK(eventfd_write(event, 1) == 0);
	}
	return NULL;
}

// events: the same call from the same place. What ends one before its time is an event.
static void events(long n)
{
	struct epoll_event e;
	eventfd_t v;
	pthread_t t = thread(make_events, n);
	for (long i = 0; i < n;) {
		long begin = now(), r = epoll_wait(ep, &e, 1, MSEC);
		CHECK(r == 1 || r == 0 && now() - begin >= MSEC * 1000000L);
		if (r == 1) {
			CHECK(eventfd_read(event, &v) == 0);
			i++;
		}
	}
	pthread_join(t, NULL);
}

static void filter(const char *kind)
{
	unsigned ret = !strcmp(kind, "process") ? SECCOMP_RET_KILL_PROCESS :
		       !strcmp(kind, "thread")	? SECCOMP_RET_KILL_THREAD :
		       !strcmp(kind, "trap")	? SECCOMP_RET_TRAP :
		       !strcmp(kind, "errno")	? SECCOMP_RET_ERRNO | EPERM :
						  SECCOMP_RET_USER_NOTIF;
	struct sock_filter one[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ret),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static const int list[] = { SYS_read, SYS_write, SYS_exit_group, SYS_exit, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_poll, SYS_ppoll,
		SYS_futex, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_semtimedop, SYS_rt_sigtimedwait,
		SYS_io_getevents, SYS_io_pgetevents, SYS_recvfrom, SYS_recvmsg, SYS_preadv2, SYS_pwritev2, SYS_splice, SYS_sendfile, SYS_sendto, SYS_accept, SYS_connect, SYS_socket, SYS_bind, SYS_listen,
		SYS_setsockopt, SYS_clone3, SYS_clone, SYS_mmap, SYS_mprotect, SYS_rt_sigprocmask, SYS_set_robust_list, SYS_rseq, SYS_madvise, SYS_munmap,
		SYS_gettid, SYS_getpid, SYS_rt_sigaction, SYS_brk, SYS_getrandom };
	enum { N = sizeof list / sizeof *list };
	struct sock_filter many[N + 3] = { one[0] };
	for (int i = 0; i < N; i++)
		many[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, list[i], N - i, 0);
	many[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	many[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	int all = !strcmp(kind, "list");
	struct sock_fprog p = { all ? N + 3 : 4, all ? many : one };
	long flags = !strcmp(kind, "notify") ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p) >= 0);
}

int main(int argc, char **argv)
{
	char line[64], name[64];
	long n;
	setup();
	if (argc > 1)
		filter(argv[1]);
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "waits\n")) {
			say("did %s", names);
		} else if (sscanf(line, "wait %63s", name) == 1) {
			long begin = now(), ticks = coarse();
			errno = 0;
			long r = wait_in(name);
			int error = r < 0 ? errno : 0;
			CHECK(foo(r) == 23 * r + 1);
			long waited = now() - begin, ticked = coarse() - ticks;
			CHECK((waited > ticked ? waited : ticked) >= (r == 0 && !aio_ok && !strncmp(name, "io_", 3) ? 0 : MSEC * 1000000L));
			say("did %s %ld %d", name, r, error);
		} else if (sscanf(line, "events %ld", &n) == 1) {
			events(n);
			say("did %ld", n);
		} else
			CHECK(!"a known command");
	}
	if (argc == 1)
		semctl(sem, 0, IPC_RMID);
	return verdict();
}

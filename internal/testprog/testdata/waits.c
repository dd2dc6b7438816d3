// Threads that wait in system calls which a stop may end with EINTR, and say so if one does: argument 1 is how many. Argument 2 is what else:
// "storm", two threads make threads all the time; "signals", two send themselves signals, of which none may be lost; "vfork", a thread is inside vfork(2) as long as its child wants; "deaf", the same
// by the 32-bit call, which is in state D and can't be told from others by its number; "leader", the main thread has ended; "again", EINTR is right. "call V" prints
// "ret R"; the end of input lets all go on, and the verdict follows.
#include "prog.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static long quit, again;

// SIGCONT, and freezers, end some calls with EINTR, whether there is a tracer or not.
#define AGAIN(call) ({ long r_; do r_ = (call); while (r_ < 0 && errno == EINTR && again); r_; })

static int event, hold[2];

REAL long foo(long v) { return 29 * v + 1; }

static void in_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, event, &ev) == 0);
	CHECK(AGAIN(epoll_wait(ep, &ev, 1, -1)) == 1);
	close(ep);
}

static void in_poll(void)
{
	struct pollfd p = { .fd = event, .events = POLLIN };
	CHECK(AGAIN(poll(&p, 1, -1)) == 1);
}

static void in_sigwaitinfo(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(AGAIN(sigwaitinfo(&set, NULL)) == SIGUSR1);
}

static void in_recv(void)
{
	struct timeval limit = { .tv_sec = 10000 };
	int pair[2];
	char c;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	struct pollfd p = { .fd = event, .events = POLLIN };
	while (!GET(quit)) {
		CHECK(AGAIN(poll(&p, 1, 1)) >= 0);
		CHECK(write(pair[1], "x", 1) == 1);
		CHECK(recv(pair[0], &c, 1, 0) == 1);
	}
	close(pair[0]);
	close(pair[1]);
}

static void in_code(void)
{
	for (long n = 0; !GET(quit); n++) {
		CHECK(foo(n) == 29 * n + 1);
		if (n % 64 == 0)
			usleep(500);
	}
}

static void (*const ways[])(void) = { in_epoll, in_poll, in_sigwaitinfo, in_recv, in_code };
#define WAYS (sizeof ways / sizeof *ways)

static void *waiter(void *arg)
{
	long way = (long)arg % 1024; // few of them run
	ways[way < (long)WAYS ? way : way % 3]();
	return NULL;
}

static void *answers(void *arg) { return (void *)foo((long)arg); }

static void *maker(void *unused)
{
	for (long n = 0; !GET(quit); n++) {
		void *result;
		pthread_t a = thread(answers, n), b = thread(answers, n + 1);
		pthread_join(a, &result);
		CHECK((long)result == 29 * n + 1);
		pthread_join(b, &result);
		CHECK((long)result == 29 * (n + 1) + 1);
	}
	return NULL;
}

// The child waits until the pipe ends, as a program would that it executes.
static void child_waits(void)
{
	char c;
	close(hold[1]);
	while (read(hold[0], &c, 1) > 0) {
	}
	_exit(7);
}

static void *vforks(void *unused)
{
	pid_t pid = vfork();
	if (pid == 0)
		child_waits();
	int status;
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return NULL;
}

static void *vforks_deaf(void *unused)
{
	int pid;
	__asm__ volatile("int $0x80" : "=a"(pid) : "a"(190) : "memory", "r8", "r9", "r10", "r11");
	if (pid == 0)
		child_waits();
	int status;
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return NULL;
}

static __thread long handled;

static void handler(int sig) { handled++; }

static void *signals(void *unused)
{
	for (long sent = 0; !GET(quit);) {
		CHECK(pthread_kill(pthread_self(), SIGRTMIN) == 0);
		CHECK(handled == ++sent);
		if (sent % 256 == 0)
			usleep(100);
	}
	return NULL;
}

static pthread_t *t, extra[2], leader;
static long n, extras;

static void *main_loop(void *ends)
{
	char line[64];
	long v;
	if (ends)
		outlive(leader);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "call %ld", &v) == 1);
		say("ret %ld", foo(v));
	}
	SET(quit, 1);
	CHECK(eventfd_write(event, 1) == 0);
	close(hold[1]);
	for (long i = 0; i < n; i++)
		pthread_kill(t[i], SIGUSR1); // which all block
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	for (long i = 0; i < extras; i++)
		pthread_join(extra[i], NULL);
	exit(verdict());
}

int main(int argc, char **argv)
{
	const char *also = argc > 2 ? argv[2] : "";
	pthread_attr_t small;
	again = !strcmp(also, "again");
	n = argc > 1 ? atol(argv[1]) : 8;
	t = calloc(n, sizeof *t);
	event = eventfd(0, 0);
	CHECK(event >= 0 && pipe(hold) == 0);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (long i = 0; i < n; i++)
		if (pthread_create(&t[i], &small, waiter, (void *)i))
			_exit(98);
	if (!strcmp(also, "storm"))
		for (; extras < 2; extras++)
			extra[extras] = thread(maker, 0);
	else if (!strcmp(also, "signals"))
		for (signal(SIGRTMIN, handler); extras < 2; extras++)
			extra[extras] = thread(signals, 0);
	else if (!strcmp(also, "vfork"))
		extra[extras++] = thread(vforks, 0);
	else if (!strcmp(also, "deaf"))
		extra[extras++] = thread(vforks_deaf, 0);
	else if (!strcmp(also, "leader")) {
		leader = pthread_self();
		thread(main_loop, 1);
		pthread_exit(NULL);
	}
	main_loop(NULL);
}

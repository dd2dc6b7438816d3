// A thread in each of many blocking system calls, all with a timeout of MS
// milliseconds (argument 1, or 60000). "wake" or the end of input ends those that can be woken,
// the timeout the others. Each thread prints "NAME right MS" or "NAME wrong RESULT ERRNO MS";
// nobody sends a signal, so an EINTR is a tracer's doing. Then "all".
#include "prog.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static long ms = 60000;
static int word, woken;
static sem_t sem;
static struct call { const char *name; int wakes; long (*f)(int fd, struct timespec *t); int fd[2], tid; pthread_t t; } calls[];

static long c_nanosleep(int fd, struct timespec *t) { return nanosleep(t, NULL); }
static long c_clock_nanosleep(int fd, struct timespec *t)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	now.tv_sec += t->tv_sec + (now.tv_nsec + t->tv_nsec) / 1000000000;
	now.tv_nsec = (now.tv_nsec + t->tv_nsec) % 1000000000;
	return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL);
}
static long c_futex(int fd, struct timespec *t) { return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, t, NULL, 0) == 0; }
static long c_sem(int fd, struct timespec *t)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += t->tv_sec + (end.tv_nsec + t->tv_nsec) / 1000000000;
	end.tv_nsec = (end.tv_nsec + t->tv_nsec) % 1000000000;
	return sem_timedwait(&sem, &end) == 0;
}
static long c_poll(int fd, struct timespec *t) { struct pollfd p = { fd, POLLIN, 0 }; return poll(&p, 1, ms); }
static long c_select(int fd, struct timespec *t)
{
	fd_set set;
	struct timeval tv = { t->tv_sec, t->tv_nsec / 1000 };
	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &tv);
}
static long c_epoll_wait(int fd, struct timespec *t)
{
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
	return epoll_wait(ep, &e, 1, ms);
}
static long c_read(int fd, struct timespec *t) { char c; return read(fd, &c, 1); }
static long c_recv(int fd, struct timespec *t)
{
	struct timeval tv = { t->tv_sec, t->tv_nsec / 1000 };
	char c;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	return recv(fd, &c, 1, 0) == 1;
}
static long c_sigtimedwait(int fd, struct timespec *t)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	return sigtimedwait(&set, NULL, t) == SIGUSR2;
}
static long c_semtimedop(int fd, struct timespec *t)
{
	struct sembuf op = { 0, -1, 0 };
	int id = semget(IPC_PRIVATE, 1, 0600);
	long r = semtimedop(id, &op, 1, t) == 0;
	int e = errno;
	semctl(id, 0, IPC_RMID);
	errno = e;
	return r;
}

#define C(name, wakes) { #name, wakes, c_##name }
static struct call calls[] = {
	C(nanosleep, 0), C(clock_nanosleep, 0), C(futex, 1), C(sem, 1), C(poll, 1), C(select, 1), C(epoll_wait, 1),
	C(read, 1), C(recv, 1), C(sigtimedwait, 0), C(semtimedop, 0),
};
#define NCALLS (sizeof calls / sizeof *calls)

static int timed_out(int err) { return err == 0 || err == ETIMEDOUT || err == EAGAIN; }

static void *worker(void *arg)
{
	struct call *c = arg;
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 }, a, b;
	SET(c->tid, gettid());
	clock_gettime(CLOCK_MONOTONIC, &a);
	errno = 0;
	long r = c->f(c->fd[0], &t);
	int err = errno;
	clock_gettime(CLOCK_MONOTONIC, &b);
	long took = ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec) / 1000000;
	int ok = (r == 1 && c->wakes && GET(woken)) || (r == 0 && timed_out(err) && took >= ms - 1);
	CHECK(ok);
	if (ok)
		say("%s right %ld", c->name, took);
	else
		say("%s wrong %ld %d %ld", c->name, r, err, took);
	return NULL;
}

// asleep waits until the thread sleeps in the kernel, or has ended.
static void asleep(struct call *c)
{
	char path[64], stat[512] = "";
	while (!strstr(stat, ") S ")) {
		sprintf(path, "/proc/self/task/%d/stat", GET(c->tid));
		FILE *f = fopen(path, "r");
		if (!f && GET(c->tid))
			return;
		if (!f)
			continue;
		CHECK(fgets(stat, sizeof stat, f) != NULL);
		fclose(f);
	}
}

int main(int argc, char **argv)
{
	char line[64];
	if (argc > 1)
		ms = atol(argv[1]);
	sem_init(&sem, 0, 0);
	for (size_t i = 0; i < NCALLS; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, calls[i].fd) == 0);
		calls[i].t = thread(worker, (long)&calls[i]);
	}
	for (size_t i = 0; i < NCALLS; i++)
		asleep(&calls[i]);
	say("ready");
	hear(line, sizeof line);
	SET(woken, 1);
	for (size_t i = 0; i < NCALLS; i++)
		CHECK(write(calls[i].fd[1], "x", 1) == 1);
	sem_post(&sem);
	SET(word, 1);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	for (size_t i = 0; i < NCALLS; i++)
		pthread_join(calls[i].t, NULL);
	say("all");
	while (hear(line, sizeof line))
		;
	return verdict();
}

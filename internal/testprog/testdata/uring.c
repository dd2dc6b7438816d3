// io_uring under load: rings whose work is done by worker threads of the kernel (IOSQE_ASYNC), one that is polled by one
// (IORING_SETUP_SQPOLL), and a worker that blocks in open(2) of a FIFO. Argument 1 "leader" has the main thread end
// first, "spent" has all threads of the program end, so that only the polling one may be left. "count" prints
// "count ROUNDS"; the end of input ends it.
#include "prog.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static long quit, rounds;

struct ring {
	int fd, polled;
	unsigned *sqtail, *sqmask, *sqarray, *sqflags, *cqhead, *cqtail, *cqmask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

REAL long foo(long v) { return 7 * v + 1; }

static void make(struct ring *r, unsigned flags)
{
	struct io_uring_params p = { .flags = flags, .sq_thread_idle = 5 };
	r->fd = syscall(SYS_io_uring_setup, 8, &p);
	CHECK(r->fd >= 0);
	char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof *r->cqes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, p.sq_entries * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	CHECK(sq != MAP_FAILED && cq != MAP_FAILED && r->sqes != MAP_FAILED);
	r->polled = flags & IORING_SETUP_SQPOLL;
	r->sqtail = (void *)(sq + p.sq_off.tail), r->sqmask = (void *)(sq + p.sq_off.ring_mask);
	r->sqarray = (void *)(sq + p.sq_off.array), r->sqflags = (void *)(sq + p.sq_off.flags);
	r->cqhead = (void *)(cq + p.cq_off.head), r->cqtail = (void *)(cq + p.cq_off.tail);
	r->cqmask = (void *)(cq + p.cq_off.ring_mask), r->cqes = (void *)(cq + p.cq_off.cqes);
}

static void submit(struct ring *r, struct io_uring_sqe sqe)
{
	unsigned tail = *r->sqtail, at = tail & *r->sqmask;
	r->sqes[at] = sqe;
	r->sqarray[at] = at;
	SET(*r->sqtail, tail + 1);
	if (!r->polled)
		CHECK(syscall(SYS_io_uring_enter, r->fd, 1, 0, 0, NULL, 0) == 1);
	else if (GET(*r->sqflags) & IORING_SQ_NEED_WAKEUP)
		CHECK(syscall(SYS_io_uring_enter, r->fd, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0) >= 0);
}

// reap waits for the completion of the request with this tag; others must have ended with their tag's result.
static int reap(struct ring *r, unsigned long *tag)
{
	while (GET(*r->cqtail) == *r->cqhead)
		CHECK(syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 0);
	struct io_uring_cqe *c = &r->cqes[*r->cqhead & *r->cqmask];
	int res = c->res;
	*tag = c->user_data;
	SET(*r->cqhead, *r->cqhead + 1);
	return res;
}

static int one(struct ring *r, struct io_uring_sqe sqe)
{
	unsigned long tag;
	sqe.user_data = 77;
	submit(r, sqe);
	int res = reap(r, &tag);
	CHECK(tag == 77);
	return res;
}

static struct io_uring_sqe io(int op, int fd, void *buf, unsigned len, unsigned long off)
{
	return (struct io_uring_sqe){ .opcode = op, .flags = IOSQE_ASYNC, .fd = fd, .addr = (unsigned long)buf, .len = len, .off = off };
}

static void files(struct ring *r, int fd, long i)
{
	char out[512], in[512];
	memset(out, 'a' + i % 26, sizeof out);
	CHECK(one(r, io(IORING_OP_WRITE, fd, out, sizeof out, 512 * (i % 64))) == sizeof out);
	CHECK(one(r, io(IORING_OP_READ, fd, in, sizeof in, 512 * (i % 64))) == sizeof in);
	CHECK(!memcmp(in, out, sizeof in));
}

static void sockets(struct ring *r, int *pair, long i)
{
	long out = 3 * i, in = 0;
	unsigned long tag, seen = 0;
	struct io_uring_sqe recv = io(IORING_OP_RECV, pair[0], &in, sizeof in, 0), send = io(IORING_OP_SEND, pair[1], &out, sizeof out, 0);
	recv.user_data = 1, send.user_data = 2;
	submit(r, recv);
	submit(r, send);
	for (int k = 0; k < 2; k++) {
		CHECK(reap(r, &tag) == sizeof in);
		seen |= tag;
	}
	CHECK(seen == 3 && in == out);
}

static void *load(void *arg)
{
	struct ring r;
	int pair[2];
	char name[] = "/tmp/gokprobe-uring-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && !unlink(name) && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	make(&r, arg ? IORING_SETUP_SQPOLL : 0);
	for (long i = 0; !GET(quit); i++) {
		files(&r, fd, i);
		sockets(&r, pair, i);
		CHECK(foo(i) == 7 * i + 1);
		ADD(rounds, 1);
	}
	close(r.fd);
	close(fd);
	close(pair[0]);
	close(pair[1]);
	return NULL;
}

// A worker blocks in open(2) until somebody opens the other end, which is a thing that any stop of the worker would end.
static void *blocked(void *arg)
{
	struct ring r;
	char name[64];
	(void)arg;
	snprintf(name, sizeof name, "/tmp/gokprobe-uring-fifo-%d", getpid());
	CHECK(!mkfifo(name, 0600));
	make(&r, 0);
	for (long i = 0; !GET(quit); i++) {
		struct io_uring_sqe open_it = { .opcode = IORING_OP_OPENAT, .flags = IOSQE_ASYNC, .fd = AT_FDCWD, .addr = (unsigned long)name,
			.open_flags = O_RDONLY, .user_data = i };
		unsigned long tag;
		submit(&r, open_it);
		int writer;
		for (int k = 0; k < 20; k++) { // meanwhile it blocks
			CHECK(foo(k) == 7 * k + 1);
			usleep(1000);
		}
		while ((writer = open(name, O_WRONLY)) < 0)
			CHECK(errno == EINTR);
		int reader = reap(&r, &tag);
		CHECK(reader >= 0 && tag == (unsigned long)i);
		close(reader);
		close(writer);
	}
	unlink(name);
	close(r.fd);
	return NULL;
}

static pthread_t t[4];

static void *commands(void *arg)
{
	char line[64];
	while (hear(line, sizeof line))
		say("count %ld", GET(rounds));
	SET(quit, 1);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	if (arg)
		exit(verdict());
	return NULL;
}

// spent leaves a ring whose polling thread outlives the program's own: the descriptor is never closed.
static void spent(void)
{
	struct ring r;
	char line[64];
	make(&r, IORING_SETUP_SQPOLL);
	say("ready");
	if (hear(line, sizeof line)) {
		CHECK(foo(1) == 8);
		say("ending");
	}
	syscall(SYS_exit, 0); // this thread only
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "spent"))
		spent();
	t[0] = thread(load, 0), t[1] = thread(load, 0), t[2] = thread(load, 1), t[3] = thread(blocked, 0);
	while (GET(rounds) < 20)
		usleep(1000);
	if (argc > 1 && !strcmp(argv[1], "leader")) {
		thread(commands, 1);
		say("ready");
		pthread_exit(NULL);
	}
	say("ready");
	commands(NULL);
	return verdict();
}

// A program that fights its tracer. The arguments: a seed, and a file that is not its own. It prints "ready"; after "go" it calls its
// functions, from several threads, and in between does things at random to all that a tracer may have brought here: it overwrites,
// unmaps, protects, moves and empties injected memory, its own text and descriptors, forks, executes itself, and ends. It says nothing
// more. Injected memory is what is mapped of a memfd, or anonymous memory that can be executed.
#include "prog.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define CALLS 50

static unsigned long seed;
static char **args;
static int generation;

static unsigned long rnd(unsigned long n)
{
	unsigned long z = __atomic_add_fetch(&seed, 0x9e3779b97f4a7c15, __ATOMIC_SEQ_CST);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % n;
}

REAL long counted(long v) { return 3 * v + 1; }
REAL long recorded(long v) { return 5 * v + 2; }
REAL long handled(long v) { return 7 * v + 3; }
REAL long returning(long v) { return v > 0 ? returning(v - 1) + 1 : 0; }
REAL long returned(long v) { return v * v; }
REAL long chosen(long v) { return v ^ 5; }
REAL long stepped(long v) { return v - 9; }

static long (*const probed[])(long) = { counted, recorded, handled, returning, returned, chosen, stepped };
enum { functions = sizeof probed / sizeof *probed };

static void calls(void)
{
	for (long i = 0; i < CALLS; i++)
		probed[rnd(functions)](i % 7);
}

struct part { char *start, *end; int write, exec; };

// A random mapping of the tracer's.
static int injected(struct part *found)
{
	static __thread char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY), n = 0, all = 0;
	for (ssize_t r; fd >= 0 && n < (int)sizeof text - 1 && (r = read(fd, text + n, sizeof text - 1 - n)) > 0;)
		n += r;
	close(fd);
	text[n] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long start, end, inode = 1;
		char p[8];
		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, p, &inode) < 4)
			continue;
		if ((strstr(line, "memfd:") || (inode == 0 && p[2] == 'x' && !strchr(line, '['))) && rnd(++all) == 0)
			*found = (struct part){ (char *)start, (char *)end, p[1] == 'w', p[2] == 'x' };
	}
	return all > 0;
}

static unsigned long value(void)
{
	switch (rnd(10)) {
	case 0: return 0;
	case 1: return ~0UL;
	case 2: return rnd(4096);
	case 3: return 1UL << rnd(64);
	case 4: return (unsigned long)probed[rnd(functions)];
	case 5: return (unsigned long)&seed;
	case 6: return -rnd(4096);
	case 7: return 0xcccccccccccccccc;
	case 8: return rnd(256) << 32 | rnd(8);
	}
	return rnd(~0UL);
}

// Where something is written, small and large runs, at page starts more often.
static void scribble(struct part *p)
{
	long size = p->end - p->start, page = rnd(size / 4096), off = rnd(2) ? rnd(4096 / 8) * 8 : rnd(8) * 8;
	unsigned long *at = (unsigned long *)(p->start + page * 4096 + off), v = value();
	long words = 1L << rnd(12);
	if (rnd(4) == 0) // what is in use lies in front
		at = (unsigned long *)(p->start + rnd(size < 1 << 18 ? size / 8 : 1 << 15) * 8);
	for (long i = 0; i < words && (char *)(at + i + 1) <= p->end; i++)
		switch (rnd(3)) {
		case 0: __atomic_store_n(at + i, v, __ATOMIC_SEQ_CST); break;
		case 1: __atomic_add_fetch(at + i, rnd(2) ? 1 : v, __ATOMIC_SEQ_CST); break;
		default: if (at[i]) __atomic_store_n(at + i, value(), __ATOMIC_SEQ_CST); // what is in use
		}
}

static void remap(struct part *p)
{
	long pages = (p->end - p->start) / 4096, from = rnd(pages), n = rnd(4) ? 1 : 1 + rnd(pages - from);
	char *at = p->start + 4096 * from;
	size_t len = 4096 * n;
	switch (rnd(9)) {
	case 0: munmap(at, len); break;
	case 1: mprotect(at, len, PROT_NONE); break;
	case 2: mprotect(at, len, PROT_READ); break;
	case 3: madvise(at, len, MADV_REMOVE); break;
	case 4: madvise(at, len, MADV_DONTNEED); break;
	case 5: mmap(at, len, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break;
	case 6: mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x100000000000); break;
	case 7: mremap(at, len, len + 8192, MREMAP_MAYMOVE); break;
	case 8: madvise(p->start, p->end - p->start, MADV_REMOVE); break;
	}
}

// The files behind it, where we may have them again.
static void resize(struct part *p)
{
	char name[64];
	snprintf(name, sizeof name, "/proc/self/map_files/%lx-%lx", (long)p->start, (long)p->end);
	int fd = open(name, O_RDWR);
	if (fd < 0)
		return;
	if (ftruncate(fd, rnd(2) ? 0 : 1 << 30) == 0)
		say("resized");
	fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE);
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 24);
	close(fd);
}

static void text(void)
{
	char *f = (char *)probed[rnd(functions)];
	if (mprotect((char *)((long)f & ~4095L), 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
		return;
	switch (rnd(4)) {
	case 0: f[0] = 0x90; break;
	case 1: f[rnd(6)] = rnd(256); break;
	case 2: *(volatile char *)f = 0xcc; break;
	case 3: memset(f, 0xc3, 1); break;
	}
}

static void *caller(void *arg)
{
	for (int i = 0; i < 20; i++)
		calls();
	return NULL;
}

static void *swapper(void *arg)
{
	int what = open(args[2], O_PATH), number = dup(0);
	close(number);
	for (int i = 0; i < 100000; i++)
		if (fcntl(number, F_GETFD) >= 0) {
			dup3(what, number, O_CLOEXEC);
			sched_yield();
			close(number);
		}
	return NULL;
}

static void process(void)
{
	char next[32], count[32];
	pid_t p;
	switch (rnd(6)) {
	case 0:
		if ((p = fork()) == 0) {
			calls();
			_exit(0);
		}
		waitpid(p, NULL, 0);
		break;
	case 1:
		if ((p = vfork()) == 0)
			_exit(0);
		waitpid(p, NULL, 0);
		break;
	case 2:
		if (fork() == 0) // it goes on by itself
			for (int i = 0; i < 10; i++)
				calls();
		break;
	case 3:
		if (rnd(3) == 0 && generation < 3) {
			snprintf(next, sizeof next, "%lu", rnd(1UL << 62));
			snprintf(count, sizeof count, "%d", generation + 1);
			execl("/proc/self/exe", args[0], next, args[2], count, NULL);
		}
		break;
	case 4:
		if (rnd(20) == 0)
			_exit(0);
		break;
	case 5:
		if (rnd(20) == 0)
			kill(getpid(), (int[]){ SIGKILL, SIGSEGV, SIGTERM }[rnd(3)]);
		break;
	}
}

static void on_trap(int sig) { }

static void state(void)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, rnd(2) ? SIGTRAP : SIGSEGV);
	switch (rnd(8)) {
	case 0: signal(SIGTRAP, rnd(2) ? SIG_IGN : on_trap); break;
	case 1: pthread_sigmask(rnd(2) ? SIG_BLOCK : SIG_UNBLOCK, &s, NULL); break;
	case 2: raise(SIGTRAP); break;
	case 3: setrlimit(RLIMIT_NOFILE, &(struct rlimit){ rnd(16), 64 }); break;
	case 4: prctl(PR_SET_DUMPABLE, rnd(2)); break;
	case 5: for (int fd = 3; fd < 32; fd++) close(fd); break;
	case 6: thread(caller, 0); break;
	case 7: thread(swapper, 0); break;
	}
}

static void *fight(void *arg)
{
	struct part p;
	unsigned long kinds = (unsigned long)arg;
	struct timespec until, now;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 2;
	for (int acts = 0; acts < 60;) {
		calls();
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > until.tv_sec)
			break; // nobody has come
		int act = rnd(10);
		if (!(kinds >> act & 1) || !injected(&p))
			continue;
		acts++;
		switch (act) {
		case 0: case 1: case 2: if (p.write) scribble(&p); break;
		case 3: remap(&p); break;
		case 4: resize(&p); break;
		case 5: text(); break;
		case 6: process(); break;
		case 7: case 8: state(); break;
		case 9:
			if (p.exec && mprotect(p.start, p.end - p.start, PROT_READ | PROT_WRITE | PROT_EXEC) == 0)
				scribble(&p);
			break;
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char line[64];
	args = argv;
	seed = strtoul(argv[1], NULL, 10);
	generation = argc > 3 ? atoi(argv[3]) : 0;
	alarm(20); // code that was overwritten may run for ever
	setrlimit(RLIMIT_CPU, &(struct rlimit){ 5, 5 });
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	if (generation == 0) {
		say("ready");
		hear(line, sizeof line);
	}
	unsigned long kinds = rnd(4) ? 7 | 1 << rnd(10) | 1 << rnd(10) : ~0UL;
	thread(caller, 0);
	pthread_t other = thread(fight, kinds);
	fight((void *)kinds);
	pthread_join(other, NULL);
	_exit(0);
}

// A program that changes what the kernel thinks of it, at random moments, while it checks its results. Argument 1 is a
// seed, 2 the number of threads beside the first, 3 what is changed, a letter each:
//   d dumpability  g the base of gs  f that of fs  s selectors of segments  n namespaces  c credentials  x the program itself
//   u rings of io_uring come and go  U a user namespace, of a child; or of itself if it has one thread
// "count" prints "count ROUNDS"; "show" makes it dumpable and prints "shown", until "go" prints "going"; the end of input ends it.
#include "rounds.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static long quit, rounds, calm, busy;
static const char *moods;
static int null, nested; // nested: in a user namespace of its own, with one user

REAL long foo(long v) { return 7 * v + 1; }
REAL long deep(long n) { return n ? deep(n - 1) + foo(n) : 3; } // returns are followed
REAL long writes(int fd) { return write(fd, "x", 1); }

// quiet is called with any bases: it uses no variable of the thread's.
long quiet(long v);
asm(".text\n.globl quiet\n.type quiet,@function\nquiet: lea 5(%rdi,%rdi),%rax\ncall inner\nret\n.size quiet,.-quiet\n"
    ".type inner,@function\ninner: add $2,%rax\nnopl (%rax)\nret\n.size inner,.-inner\n");

static void check(long i)
{
	CHECK(foo(i) == 7 * i + 1);
	CHECK(deep(4) == 3 + 7 * 10 + 4);
	CHECK(quiet(i) == 2 * i + 7);
	CHECK(writes(null) == 1);
}

static int wants(char mood) { return strchr(moods, mood) != NULL; }

// keeps_bases tells whether the kernel keeps bases that programs write by themselves (HWCAP2_FSGSBASE).
static int keeps_bases(void) { return (getauxval(AT_HWCAP2) & 2) != 0; }

static void bases(unsigned *seed, long i)
{
	unsigned long fs, base = (unsigned long)rand_r(seed) << 12 | (rand_r(seed) & 1 ? 0xffff800000000000 : 0), got;
	if (wants('g') && keeps_bases()) {
		asm volatile("wrgsbase %0" ::"r"(base));
		check(i);
		asm volatile("rdgsbase %0" : "=r"(got));
		CHECK(got == base);
	}
	if (wants('f') && keeps_bases()) {
		long result;
		asm volatile("rdfsbase %[fs]\nwrfsbase %[base]\ncall quiet\nrdfsbase %[got]\nwrfsbase %[fs]"
			     : [fs] "=&b"(fs), [got] "=&r"(got), "=&a"(result), "+D"(i)
			     : [base] "r"(base)
			     : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory");
		CHECK(got == base && result == 2 * i + 7);
	}
	if (wants('s')) {
		unsigned short own, now, odd = 0x28; // of level 0, where all are of 3
		asm volatile("mov %%ds,%0" : "=r"(own));
		asm volatile("mov %0,%%ds" ::"r"(odd));
		check(i);
		asm volatile("mov %%ds,%0\nmov %1,%%ds" : "=&r"(now) : "r"(own));
		CHECK(now == odd);
	}
}

static void credentials(unsigned *seed, long i)
{
	// By the kernel's own calls, which are for one thread.
	uid_t other = rand_r(seed) & 1 ? 65534 : 12345;
	if (geteuid() != 0) {
		other = getuid();
		CHECK(!syscall(SYS_setresgid, -1, getgid(), -1));
	}
	CHECK(!syscall(SYS_setresuid, -1, other, getuid() ? -1 : 0));
	check(i);
	CHECK(!syscall(SYS_setresuid, -1, getuid(), -1));
}

static void put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void own_users(long i)
{
	char map[32];
	snprintf(map, sizeof map, "0 %d 1", geteuid());
	prctl(PR_SET_DUMPABLE, 1); // who is not can't write these
	if (unshare(CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWIPC))
		return; // nested too deep, or not permitted
	nested = 1;
	put("/proc/self/uid_map", map);
	check(i);
	CHECK(!syscall(SYS_setresuid, 0, 0, 0));
	check(i);
}

static void child(unsigned *seed, long i)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		wrong = 0;
		if (wants('d'))
			prctl(PR_SET_DUMPABLE, rand_r(seed) & 1);
		if (wants('U'))
			own_users(i);
		if (wants('c') && !nested)
			credentials(seed, i);
		check(i);
		_exit(wrong != 0);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	CHECK(status == 0);
}

static void ring(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQPOLL };
	int fd = syscall(SYS_io_uring_setup, 4, &p);
	CHECK(fd >= 0 || errno == EAGAIN); // so it fails for a thread that an exec is about to end
	close(fd);
}

static void change(unsigned *seed, long i)
{
	if (wants('d'))
		CHECK(!prctl(PR_SET_DUMPABLE, rand_r(seed) & 1));
	if (wants('n') && i % 16 == 0 && !geteuid())
		CHECK(!unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS | CLONE_FS));
	if (wants('c') && !nested)
		credentials(seed, i);
	if (wants('u') && i % 8 == 0)
		ring();
	bases(seed, i);
	check(i);
	if (i % 4 == 0)
		child(seed, i);
	ADD(rounds, 1);
}

// turn is for one thread to do something, unless all are to be calm.
static int turn(void)
{
	ADD(busy, 1);
	if (!GET(calm))
		return 1;
	ADD(busy, -1);
	usleep(100);
	return 0;
}

static void *worker(void *arg)
{
	unsigned seed = (long)arg;
	for (long i = 0; !GET(quit); i++) {
		if (!turn())
			continue;
		change(&seed, i);
		ADD(busy, -1);
	}
	return NULL;
}

static void be_calm(void)
{
	SET(calm, 1);
	while (GET(busy))
		usleep(100);
	prctl(PR_SET_DUMPABLE, 1);
}

static void again(char **argv, unsigned seed)
{
	char number[16], so_far[32];
	snprintf(number, sizeof number, "%u", seed);
	snprintf(so_far, sizeof so_far, "%ld", GET(rounds));
	execl("/proc/self/exe", argv[0], number, argv[2], argv[3], so_far, GET(wrong) ? "wrong" : NULL, NULL);
	CHECK(!"executed");
}

int main(int argc, char **argv)
{
	unsigned seed = atol(argv[1]);
	long n = atol(argv[2]);
	pthread_t t[16];
	char line[64];
	moods = argv[3];
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	rounds = argc > 4 ? atol(argv[4]) : 0;
	wrong = argc > 5;
	for (long i = 0; i < n; i++)
		t[i] = thread(worker, seed + i + 1);
	if (argc == 4)
		say("ready");
	for (long i = 0;; i++) {
		if (spoken_to()) {
			if (!hear(line, sizeof line))
				break;
			if (!strncmp(line, "show", 4)) {
				be_calm();
				say("shown");
			} else if (!strncmp(line, "go", 2)) {
				SET(calm, 0);
				say("going");
			} else {
				say("count %ld", GET(rounds));
			}
		}
		if (GET(calm)) {
			usleep(100);
			continue;
		}
		if (wants('U') && n == 0 && i % 64 == 0)
			own_users(i);
		change(&seed, i);
		if (wants('x') && rand_r(&seed) % 16 == 0)
			again(argv, rand_r(&seed));
	}
	SET(calm, 0);
	SET(quit, 1);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return verdict();
}

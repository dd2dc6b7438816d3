// Functions to make fail. "run N" calls work N times and prints "failed K:" with the numbers of the calls that did, from 1;
// "threads T N" does in T threads and prints "failed K of C"; "open PATH" opens it and prints "open R errno E"; "errnos" prints errno after work; "types" calls a
// function of each type of result and prints them; "fill N" prints how many of N bytes are not what fill is to write, and which is
// the first; "sized N…" calls sized with each number; "nested N" calls work from two functions, by turns; "usr1" prints how many SIGUSR1 came; "child N" is "run N" in a
// forked child. A call that is not made to fail must do what it does.
#include "prog.h"
#include <fcntl.h>
#include <stdbool.h>

static long done, usr1;

struct pair { long a, b; };

REAL int work(long n, const char *name) { ADD(done, 1); return n >= 0 && name ? (int)(n & 1) : 7; }
REAL void *pointer(long n) { ADD(done, 1); return &done + n - n; }
REAL bool truth(long n) { ADD(done, 1); return n == n; }
REAL void nothing(void) { ADD(done, 1); }
REAL unsigned char small(long n) { ADD(done, 1); return n; }
REAL double real(long n) { ADD(done, 1); return n / 2.0; }
REAL struct pair both(long n) { ADD(done, 1); return (struct pair){ n, -n }; }
REAL int pthread_like(long n) { ADD(done, 1); return n - n; }
REAL long fill(unsigned char *to, long n)
{
	for (long i = 0; i < n; i++)
		to[i] = i;
	return n;
}
REAL long sized(long n) { ADD(done, 1); return n; }
REAL int many(long a, long b, long c, long d, long e, long f, long g, long h) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h; }
REAL int first_caller(long n) { int r = work(n, "first"); return r + (r & 0); }
REAL int second_caller(long n) { int r = work(n, "second"); return r + (r & 0); }

static const char *names[] = { "a.conf", "b.conf", "c.txt" };

// once calls work as number n, from 1, and tells whether it failed.
static int once(long n, int (*f)(long, const char *))
{
	errno = 0;
	int r = f(n, names[n % 3]);
	int bad = r < 0;
	CHECK(bad || r == (n & 1));
	CHECK(!bad || errno == 0 || errno == ENOENT || errno == EIO || errno == EAGAIN);
	return bad;
}

static void run(long n)
{
	static char line[1 << 16];
	long failed = 0;
	int at = 0;
	SET(done, 0);
	for (long i = 1; i <= n; i++)
		if (once(i, work)) {
			failed++;
			if (at < (int)sizeof line - 32)
				at += sprintf(line + at, " %ld", i);
		}
	CHECK(GET(done) == n - failed);
	line[at] = 0;
	dprintf(1, "failed %ld:%s\n", failed, line);
}

static void *worker(void *n)
{
	long failed = 0;
	for (long i = 1; i <= (long)n; i++)
		failed += once(i, work);
	return (void *)failed;
}

static void in_threads(long threads, long n)
{
	pthread_t t[64];
	long failed = 0;
	SET(done, 0);
	for (long i = 0; i < threads; i++)
		t[i] = thread(worker, n);
	for (long i = 0; i < threads; i++) {
		void *r;
		pthread_join(t[i], &r);
		failed += (long)r;
	}
	CHECK(GET(done) == threads * n - failed);
	say("failed %ld of %ld", failed, threads * n);
}

static void types(void)
{
	errno = 0;
	nothing();
	struct pair b = both(5);
	void *p = pointer(1);
	int yes = truth(1), few = small(9);
	double r = real(5);
	int like = pthread_like(3);
	say("pointer %d truth %d small %d real %g both %ld %ld like %d errno %d", p == &done, yes, few, r, b.a, b.b, like, errno);
}

static void filled(long n)
{
	static unsigned char buf[4096];
	long bad = 0, first = -1, r = fill(buf, n);
	for (long i = 0; i < n; i++)
		if (buf[i] != (unsigned char)i && bad++ == 0)
			first = i;
	say("fill %ld wrong %ld first %ld is %#x", r, bad, first, first < 0 ? 0 : buf[first]);
}

static void on_usr1(int sig) { (void)sig; ADD(usr1, 1); }

int main(void)
{
	static char line[4096], word[4096];
	long n, m;
	signal(SIGUSR1, on_usr1);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "run %ld", &n) == 1) {
			run(n);
		} else if (sscanf(line, "threads %ld %ld", &n, &m) == 2 && n <= 64) {
			in_threads(n, m);
		} else if (sscanf(line, "open %4095s", word) == 1) {
			errno = 0;
			int fd = open(word, O_RDONLY);
			say("open %d errno %d", fd < 0 ? fd : 0, errno);
			if (fd >= 0)
				close(fd);
		} else if (!strcmp(line, "types\n")) {
			types();
		} else if (!strcmp(line, "errnos\n")) {
			errno = 0;
			work(1, "errnos");
			say("errnos %d", errno);
		} else if (!strcmp(line, "many\n")) {
			say("many %d", many(1, 1, 1, 1, 1, 1, 1, 1));
		} else if (sscanf(line, "fill %ld", &n) == 1 && n <= 4096) {
			filled(n);
		} else if (!strncmp(line, "sized", 5)) {
			char *s = line + 5, *end;
			long failed = 0;
			for (; (n = strtol(s, &end, 10)), end != s; s = end)
				failed = failed * 2 + (sized(n) < 0);
			say("sized %#lx", failed);
		} else if (sscanf(line, "nested %ld", &n) == 1) {
			long first = 0, second = 0;
			for (long i = 0; i < n; i++) {
				first += first_caller(i) < 0;
				second += second_caller(i) < 0;
			}
			say("nested %ld %ld", first, second);
		} else if (!strcmp(line, "usr1\n")) {
			say("usr1 %ld", GET(usr1));
		} else if (sscanf(line, "child %ld", &n) == 1) {
			fflush(NULL);
			pid_t pid = fork();
			int status = 0;
			if (pid == 0) {
				run(n);
				_exit(0);
			}
			CHECK(waitpid(pid, &status, 0) == pid && status == 0);
			say("joined");
		} else {
			CHECK(!"known command");
		}
	}
	return verdict();
}

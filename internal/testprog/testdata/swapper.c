// A program that puts other files where a tracer has it make a memfd. The arguments: who does it, "thread", or "table": a process
// that shares the descriptors only, or "exec": the program itself, which is executed anew each time, or "exit", which ends; and what is
// put there:
//   path:FILE ro:FILE rw:FILE  FILE, opened by O_PATH, for reading, for both
//   tmp:DIRECTORY              a file without a name there
//   memfd:N sealed fresh huge  a memfd of N bytes; empty ones
//   nothing                    the number is closed
// "call N" calls foo N times; "swaps" says how often something was put there; "size" how long that is now, and its seals.
#include "prog.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int number, what;
static long *swaps;
static char **args;

REAL long foo(long v) { return 3 * v + 1; }

static int make(const char *kind)
{
	char *file = strchr(kind, ':');
	const int sealable = MFD_ALLOW_SEALING | MFD_CLOEXEC;
	int fd;
	if (strncmp(kind, "path:", 5) == 0)
		return open(file + 1, O_PATH);
	if (strncmp(kind, "ro:", 3) == 0)
		return open(file + 1, O_RDONLY | O_NONBLOCK);
	if (strncmp(kind, "rw:", 3) == 0)
		return open(file + 1, O_RDWR | O_NONBLOCK);
	if (strncmp(kind, "tmp:", 4) == 0)
		return open(file + 1, O_TMPFILE | O_RDWR, 0666);
	if (strcmp(kind, "huge") == 0 && (fd = memfd_create("gokprobe", sealable | MFD_HUGETLB)) >= 0)
		return fd;
	fd = memfd_create("gokprobe", sealable);
	if (file)
		CHECK(ftruncate(fd, atol(file + 1)) == 0 && write(fd, "mine", 4) == 4);
	if (strcmp(kind, "sealed") == 0)
		CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0);
	return fd;
}

// The number is in use when the tracer has had us make a memfd. There is time until the next of its steps.
static void *swap(void *who)
{
	for (;;) {
		while (fcntl(number, F_GETFD) < 0)
			;
		if (strcmp(who, "exit") == 0)
			_exit(0);
		if (what < 0)
			close(number);
		else
			CHECK(dup3(what, number, 0) == number);
		ADD(*swaps, 1);
		if (strcmp(who, "exec") == 0)
			execv("/proc/self/exe", args);
		for (int i = 0; i < 300; i++)
			sched_yield();
		close(number);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char line[64];
	long n;
	args = argv;
	what = strcmp(argv[2], "nothing") == 0 ? -1 : make(argv[2]);
	CHECK(what >= 0 || strcmp(argv[2], "nothing") == 0);
	swaps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	number = dup(0);
	close(number);
	if (strcmp(argv[1], "table") == 0) {
		if (syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			swap(argv[1]);
		}
	} else
		thread((void *(*)(void *))swap, (long)argv[1]);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &n) == 1) {
			for (long i = 0; i < n; i++)
				CHECK(foo(i) == 3 * i + 1);
			say("called %ld", n);
		} else if (strcmp(line, "swaps\n") == 0)
			say("swaps %ld", GET(*swaps));
		else if (strcmp(line, "size\n") == 0)
			say("size %ld seals %d", (long)lseek(what, 0, SEEK_END), fcntl(what, F_GET_SEALS));
	}
	return verdict();
}

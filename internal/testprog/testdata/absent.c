// Memory that is not there. Who is to provide it never does, or does: the argument is "userfaultfd", "served" (by a thread of the program's), or the name of
// a file, whose file system may not answer. "call N": N rounds, in which the program itself touches nothing of that, then "called N".
// foo gets addresses in it, and of memory that may not be read; there is called with a stack pointer that leads there.
#include "prog.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PAGE = 4096, PAGES = 3 };

REAL long foo(const char *s, long v) { return 3 * v + 1; }

// bare calls there with another stack pointer; nothing is written to that stack.
long bare(const char *stack, long v);
__asm__(".text\n.globl bare, there\n.type bare, @function\n.type there, @function\n"
	"bare: mov %rsp, %rdx; mov %rdi, %rsp; jmp there\n.size bare, .-bare\n"
	"there: mov %rdx, %rsp; lea 1(%rsi,%rsi,2), %rax; ret\n.size there, .-there\n");

static char served[PAGE] = "served";

// serve provides pages: all alike.
static void *serve(void *arg)
{
	int fd = (long)arg;
	struct uffd_msg msg;
	while (read(fd, &msg, sizeof msg) == sizeof msg) {
		struct uffdio_copy copy = { .dst = msg.arg.pagefault.address & -PAGE, .src = (long)served, .len = PAGE };
		CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
	}
	return NULL;
}

static char *demanded(int is_served)
{
	struct uffdio_api api = { .api = UFFD_API };
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register all = { .range = { (long)p, PAGES * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &all) == 0);
	if (is_served)
		thread(serve, fd);
	return p;
}

static char *mapped(const char *name)
{
	int fd = open(name, O_RDONLY);
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(fd >= 0 && p != MAP_FAILED);
	close(fd);
	return p;
}

int main(int argc, char **argv)
{
	int is_served = !strcmp(argv[1], "served");
	char *absent = argv[1][0] == '/' ? mapped(argv[1]) : demanded(is_served);
	char *none = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char line[64];
	long n;
	strcpy(none, "secret");
	mprotect(none, PAGE, PROT_NONE);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "call %ld", &n) == 1);
		for (long i = 0; i < n; i++) {
			CHECK(foo(absent, i) == 3 * i + 1);
			CHECK(foo(none, -1) == -2);
			CHECK(bare(absent + PAGE + PAGE / 2, i) == 3 * i + 1);
		}
		say("called %ld", n);
	}
	return verdict();
}

// A program that has its tracer allocate or look without end. argv[1] is how:
//
//	plain      as others
//	reserved   much address space that holds nothing, some of it executable
//	stretched  the mapping of its own code is very long, and most of it lies behind the end of the file
//	dense      the file of this program has more behind the code; that is mapped with it
//	pieces     very many mappings
//	names      many mappings of a file with a very long path (argv[2] is a directory)
//	copies     its own code is mapped very often, and as much anonymous code
//	argv       what /proc says of its command line has no end
//	novdso     no vdso, and in front of all other code that of a file which is nearly all hole (argv[2] is a directory)
//	journals   many mappings that look like those that a killed tracer has left
//	groups     very many supplementary groups, if it may
//	threads    many threads
//	links      the list of the dynamic linker goes round
//
// Commands: "call N" calls visible so often: "sum S"
#include "prog.h"
#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <linux/prctl.h>

#define TB (1L << 40)
#define PAGE 4096L

// Its section lies behind everything else of the program: see the flags it is built with.
REAL __attribute__((section(".huge"))) long visible(long n) { return n * 2 + 1; }

#ifdef ENDLESS
// A function of nops, and one of calls. Nobody calls them.
#define LONG(name, n, size, value) \
	__asm__(".pushsection .text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n.fill " #n "," #size "," #value \
		"\nret\n.size " #name ",.-" #name "\n.popsection")
LONG(endless, 12000000, 1, 0x90);
LONG(calling, 80000, 5, 0xe8);
#endif

#ifdef SEQUENCES
// A table of restartable sequences that are none.
__asm__(".pushsection __rseq_cs,\"a\"\n.fill 4000000,8,0x1000\n.popsection");
#endif

static void reserve(int prot)
{
	CHECK(mmap(NULL, 15 * TB, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED);
}

static void reserved(void)
{
	reserve(PROT_NONE);
	reserve(PROT_READ | PROT_WRITE);
	reserve(PROT_READ | PROT_EXEC);
}

// each calls f for the program's mappings, without any memory of the C library's: the heap would lie behind visible.
static void each(void (*f)(char *from, long len, const char *line))
{
	static char text[1 << 20];
	char *at = text;
	int fd = open("/proc/self/maps", O_RDONLY);
	ssize_t n, all = 0;
	while ((n = read(fd, text + all, sizeof text - 1 - all)) > 0)
		all += n;
	close(fd);
	for (char *end; (end = strchr(at, '\n')); at = end + 1) {
		*end = 0;
		unsigned long from = strtoul(at, &at, 16), to = strtoul(at + 1, &at, 16);
		f((char *)from, to - from, at);
	}
}

static long length; // of what visible's mapping is to become

static void stretch_own(char *at, long len, const char *line)
{
	if (at <= (char *)visible && (char *)visible < at + len)
		CHECK(mremap(at, len, length, 0) == at);
}

static void stretch(long to)
{
	length = to;
	each(stretch_own);
}

static void dense(void)
{
	struct stat st;
	CHECK(stat("/proc/self/exe", &st) == 0);
	stretch((st.st_size - 2 * PAGE) & -PAGE);
}

static int memory(const char *name, long len, const char *begin)
{
	int fd = memfd_create(name, 0);
	CHECK(fd >= 0 && ftruncate(fd, len) == 0);
	CHECK(pwrite(fd, begin, strlen(begin), 0) == (ssize_t)strlen(begin));
	return fd;
}

// pieces maps the file so often, with holes between, that each is a mapping of its own.
static void pieces(int fd, int n, int prot)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE;
	char *at = mmap(NULL, 2 * PAGE * n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(at != MAP_FAILED && munmap(at, 2 * PAGE * n) == 0);
	for (int i = 0; i < n; i++, at += 2 * PAGE)
		if (mmap(at, PAGE, prot, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
			break; // vm.max_map_count
}

static void names(const char *dir)
{
	char name[251];
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = 0;
	CHECK(chdir(dir) == 0);
	for (int i = 0; i < 15; i++)
		CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0);
	int fd = open(name, O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
	pieces(fd, 20000, PROT_READ | PROT_EXEC);
	close(fd);
}

static void copies(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	CHECK(fd >= 0);
	pieces(fd, 30000, PROT_READ | PROT_EXEC);
	pieces(-1, 30000, PROT_READ | PROT_EXEC);
	close(fd);
}

static void argv_of_terabytes(void)
{
	char *zero = mmap(NULL, 15 * TB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct prctl_mm_map m = { .exe_fd = -1 };
	unsigned long f[52] = { 0 };
	char stat[2048], *at;
	int fd = open("/proc/self/stat", O_RDONLY);
	ssize_t n = read(fd, stat, sizeof stat - 1);
	close(fd);
	CHECK(zero != MAP_FAILED && n > 0);
	stat[n] = 0;
	at = strrchr(stat, ')') + 2;
	for (int i = 3; i < 52 && (at = strchr(at, ' ')); i++, at++)
		f[i + 1] = strtoul(at, NULL, 10);
	m.start_code = f[26], m.end_code = f[27], m.start_stack = f[28], m.start_data = f[45], m.end_data = f[46];
	m.start_brk = f[47], m.brk = (unsigned long)sbrk(0);
	m.arg_start = (unsigned long)zero, m.arg_end = m.arg_start + 15 * TB;
	m.env_start = m.env_end = m.arg_end;
	CHECK(prctl(PR_SET_MM, PR_SET_MM_MAP, (unsigned long)&m, sizeof m, 0) == 0);
}

static void unmap_vdso(char *at, long len, const char *line)
{
	if (strstr(line, "[vdso]") || strstr(line, "[vvar"))
		CHECK(munmap(at, len) == 0);
}

static void novdso(const char *dir)
{
	each(unmap_vdso);
	CHECK(chdir(dir) == 0);
	int fd = open("hole", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && unlink("hole") == 0 && ftruncate(fd, 2 * TB) == 0);
	CHECK(mmap((void *)0x100000000, 2 * TB, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0) != MAP_FAILED);
	close(fd);
}

static void groups(void)
{
	static gid_t list[65536];
	for (unsigned i = 0; i < 65536; i++)
		list[i] = 1000000000 + i;
	if (setgroups(65536, list) < 0)
		CHECK(errno == EPERM);
}

static void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void threads(void)
{
	pthread_attr_t a;
	pthread_t t;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	for (int i = 0; i < 600; i++)
		CHECK(pthread_create(&t, &a, waits, NULL) == 0);
}

static void links(void)
{
	struct link_map *last = _r_debug.r_map;
	while (last->l_next)
		last = last->l_next;
	last->l_next = _r_debug.r_map;
}

static void unlinks(void)
{
	struct link_map *l = _r_debug.r_map;
	while (l && l->l_next != _r_debug.r_map)
		l = l->l_next;
	if (l)
		l->l_next = NULL;
}

static void begin(const char *how, const char *dir)
{
	static const char magic[] = "gokprobe";
	if (!strcmp(how, "reserved"))
		reserved();
	else if (!strcmp(how, "stretched"))
		stretch(15 * TB);
	else if (!strcmp(how, "dense"))
		dense();
	else if (!strcmp(how, "pieces"))
		pieces(-1, 30000, PROT_READ);
	else if (!strcmp(how, "names"))
		names(dir);
	else if (!strcmp(how, "copies"))
		copies();
	else if (!strcmp(how, "argv"))
		argv_of_terabytes();
	else if (!strcmp(how, "novdso"))
		novdso(dir);
	else if (!strcmp(how, "journals"))
		pieces(memory(magic, PAGE, magic), 60000, PROT_READ);
	else if (!strcmp(how, "groups"))
		groups();
	else if (!strcmp(how, "threads"))
		threads();
	else if (!strcmp(how, "links"))
		links();
}

int main(int argc, char **argv)
{
	char line[256];
	long n;
	begin(argc > 1 ? argv[1] : "plain", argc > 2 ? argv[2] : ".");
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &n) == 1) {
			long sum = 0;
			for (long i = 0; i < n; i++)
				sum += visible(i);
			CHECK(sum == n * n);
			say("sum %ld", sum);
		}
	}
	unlinks();
	return verdict();
}

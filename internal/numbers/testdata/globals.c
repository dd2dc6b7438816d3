#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
struct conf { int level; const char *name; struct { long a[3]; } in; struct conf *next; };
typedef struct conf conf_t;
conf_t conf = { 3, "prod", { { 1, 2, 3 } }, &conf };
static int hits = 11;
char banner[16] = "hello";
double ratio = 1.5;
static signed char small = -4;
enum mode { OFF, ON } mode = ON;
__thread int depth = 7;
static __thread struct conf mine = { 9, "own", { { 4, 5, 6 } }, 0 };
extern char *optarg;
extern int optind; /* the C library's, of which the program has a copy */
__attribute__((noinline)) int handle(int level, void *arg)
{
	static int calls = 21;
	__asm__ volatile("" ::"r"(&calls), "r"(&small), "r"(&mode), "r"(&hits), "r"(&mine), "r"(arg) : "memory");
	return open("/nonexistent/file", O_RDONLY) + level + hits + mine.level + depth + optind + (optarg != 0);
}
int main(void)
{
	errno = EBADF;
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			depth++;
			errno = EBADF;
			handle(2, conf.next);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

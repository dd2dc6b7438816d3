// What the rules of return probes are tested with, a command each. "call FUNC V" prints "ret R".
// "hold V" has a new thread call held(V) and prints "held" when it is inside; "let" lets all of
// these return and prints "let R", the sum of what they returned. "leave V" is a thread that
// exits within leaving(V), "jump V" V rounds of a longjmp over three calls of deep, "raw V" a
// thread that ends by exit(2) of the system itself; each prints "left". "fork V" and "vfork V"
// print "parent R child R", where the child of a fork returns from forking(V) as well. "exec"
// executes this program anew from within executing(). "forge V N" has N arrivals at the return
// address of a call of forged(V) without a call. "page V" calls third(V) from code that is made
// at run time.
#include "prog.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int gate[2];
static jmp_buf above;

REAL long third(long v) { return v / 3; }
REAL long held(long v)
{
	char c;
	say("held");
	CHECK(read(gate[0], &c, 1) == 1);
	return v + 1;
}
REAL long leaving(long v) { pthread_exit((void *)(v + 1)); }
REAL long vanishing(long v) { return syscall(SYS_exit, v); }
REAL long deep(long v)
{
	if (v == 0)
		longjmp(above, 1);
	return v < 0 ? v : deep(v - 1) + 1;
}
REAL long forking(long v)
{
	pid_t pid = fork();
	return pid ? -pid : v + 2;
}
REAL long vforking(long v)
{
	int status;
	pid_t pid = vfork();
	if (pid == 0)
		_exit(third(v));
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}
REAL void executing(void)
{
	char *args[] = { "kret", "again", NULL };
	execv("/proc/self/exe", args);
}

// A chain of four, whose last calls the first again.
REAL long chain1(long v);
REAL long chain4(long v) { return v > 0 ? chain1(v - 1) + 4 : 40; }
REAL long chain3(long v) { return chain4(v) + 3; }
REAL long chain2(long v) { return chain3(v) + 2; }
REAL long chain1(long v) { return chain2(v) + 1; }

// tail jumps to its end; forge calls forged(v), then comes n times to where that has returned
// to; nested, called by nest, goes there before it returns; bare has nothing but its return.
// magic returns its argument, unless something at magic_site changes it.
long tail(long v), tail_end(long v), forge(long v, long n), forged(long v), nest(long v), nested(long v), magic(long v), bare(long v);
asm(".text\n"
    ".macro FUNC name\n.globl \\name\n.type \\name,@function\n\\name:\n.endm\n"
    ".macro END name\n.size \\name,.-\\name\n.endm\n"
    "FUNC tail\nlea 1(%rdi),%rdi\njmp tail_end\nEND tail\n"
    "FUNC tail_end\nlea 5(%rdi),%rax\nret\nEND tail_end\n"
    "FUNC forged\nlea 7(%rdi),%rax\nret\nEND forged\n"
    "FUNC forge\npush %rbx\nmov %rsi,%rbx\ncall forged\n"
    "forge_return:\nlea 1(%rax),%rax\nsub $1,%rbx\njns forge_return\npop %rbx\nret\nEND forge\n"
    "FUNC nested\nmov %rdi,%rax\npush %rbx\ncall nest_return\npop %rbx\nret\nEND nested\n"
    "FUNC nest\ncall nested\nnest_return:\nlea 1(%rax),%rax\nret\nEND nest\n"
    "FUNC magic\nsub $24,%rsp\nmov %rdi,8(%rsp)\nlea 8(%rsp),%rdi\n"
    ".globl magic_site\nmagic_site: nopl 0(%rax,%rax)\nmov 8(%rsp),%rax\nadd $24,%rsp\nret\nEND magic\n"
    "FUNC bare\nret\nEND bare\n");

REAL void magic_callee(long *v) { *v += 0x1234; }

static struct { const char *name; long (*f)(long); } funcs[] = {
	{ "third", third }, { "tail", tail }, { "chain1", chain1 }, { "chain4", chain4 }, { "nest", nest }, { "magic", magic }, { "bare", bare },
};

REAL long call(const char *name, long v)
{
	for (size_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
		if (!strcmp(funcs[i].name, name))
			return funcs[i].f(v);
	CHECK(!"a known function");
	return 0;
}

static void *hold(void *v) { return (void *)held((long)v); }
static void *leave(void *v) { return (void *)(leaving((long)v) + 1); }
static void *raw(void *v) { return (void *)vanishing((long)v); }

static void jump(volatile long rounds)
{
	while (rounds-- > 0)
		if (!setjmp(above))
			CHECK(deep(2) == -1);
}

static void forks(long v)
{
	int status;
	long r = forking(v);
	if (r > 0)
		_exit(r);
	CHECK(waitpid(-r, &status, 0) == -r && WIFEXITED(status));
	say("parent %d child %d", r < 0, WEXITSTATUS(status));
}

static long generated(long v)
{
	unsigned char code[] = "\x48\x83\xec\x08\x48\xb8________\xff\xd0\x48\x83\xc4\x08\xc3"; // sub $8,%rsp; mov $…,%rax; call *%rax; add $8,%rsp; ret
	void *at = (void *)third, *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	memcpy(code + 6, &at, sizeof at);
	memcpy(page, code, sizeof code);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	v = ((long (*)(long))page)(v);
	CHECK(munmap(page, 4096) == 0);
	return v;
}

static void end(pthread_t t) { CHECK(pthread_join(t, NULL) == 0); }

int main(int argc, char **argv)
{
	static pthread_t holding[64];
	char line[128], name[64];
	long v, n, count = 0;
	void *r;
	CHECK(pipe(gate) == 0);
	say(argc > 1 ? "again" : "ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %63s %ld", name, &v) == 2) {
			say("ret %ld", call(name, v));
		} else if (sscanf(line, "hold %ld", &v) == 1 && count < 64) {
			holding[count++] = thread(hold, v);
		} else if (!strcmp(line, "let\n")) {
			long sum = 0;
			for (long i = 0; i < count; i++)
				CHECK(write(gate[1], "", 1) == 1);
			for (; count > 0; sum += (long)r)
				CHECK(pthread_join(holding[--count], &r) == 0);
			say("let %ld", sum);
		} else if (sscanf(line, "leave %ld", &v) == 1) {
			end(thread(leave, v));
			say("left");
		} else if (sscanf(line, "raw %ld", &v) == 1) {
			end(thread(raw, v));
			say("left");
		} else if (sscanf(line, "jump %ld", &v) == 1) {
			jump(v);
			say("left");
		} else if (sscanf(line, "fork %ld", &v) == 1) {
			forks(v);
		} else if (sscanf(line, "vfork %ld", &v) == 1) {
			say("parent %ld", vforking(v));
		} else if (!strcmp(line, "exec\n")) {
			executing();
		} else if (sscanf(line, "forge %ld %ld", &v, &n) == 2) {
			say("ret %ld", forge(v, n));
		} else if (sscanf(line, "page %ld", &v) == 1) {
			say("ret %ld", generated(v));
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

// Calls that are in flight while somebody does something to their return addresses, and calls from generated code.
#include "prog.h"
#include <dlfcn.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>

extern "C" {

// Calls from code that the program has made.
REAL long from_jit(long n) { return 3 * n + 1; }
}

typedef long function(long);
static function *jit_code, *jit_mid;

// A function that calls another, and adds something to its result.
static function *make_call(char *at, function *to, unsigned char add)
{
	unsigned char code[] = {
		0x53,                                     // push %rbx
		0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,       // mov $to, %rax
		0xff, 0xd0,                               // call *%rax
		0x48, 0x83, 0xc0, add,                    // add $add, %rax
		0x5b, 0xc3,                               // pop %rbx; ret
	};
	memcpy(code + 3, &to, 8);
	memcpy(at, code, sizeof code);
	return (function *)at;
}

extern "C" long fl_mid(long n);

static void make_code(void)
{
	char *p = (char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	jit_code = make_call(p, from_jit, 2);
	jit_mid = make_call(p + 64, fl_mid, 0);
	mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

// Calls that wait until they are let go, and then end in one way or another.
static sem_t there, go;
static char way[16];
static int generated; // the one in the middle is called from generated code, which no exception passes
static jmp_buf back;
static int let_go(void)
{
	while (sem_wait(&go))
		;
	return 1;
}

extern "C" {
REAL long fl_inner(long n)
{
	sem_post(&there);
	let_go();
	if (!strcmp(way, "throw"))
		throw n + 100;
	if (!strcmp(way, "jump"))
		longjmp(back, 1);
	if (!strcmp(way, "exit"))
		pthread_exit((void *)(n + 200));
	if (!strcmp(way, "fork")) { // the child throws, the parent returns
		pid_t child = fork();
		if (child == 0)
			throw n + 300;
		int status = -1;
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 33);
	}
	return n + 1;
}
REAL long fl_mid(long n) { return fl_inner(n) + 1; }
REAL long fl_outer(long n)
{
	try {
		return (generated ? jit_mid(n) : fl_mid(n)) + 1;
	} catch (long got) {
		if (got == n + 300)
			_exit(33);
		CHECK(got == n + 100);
		return got;
	}
}

// A function that jumps to one that asks who has called it.
REAL void *ask_next(const char *name) { return dlsym(RTLD_NEXT, name); }
}

static pthread_t flying;
static void *fly(void *v)
{
	if (!strcmp(way, "jump") && setjmp(back))
		return (void *)((long)v + 400);
	return (void *)fl_outer((long)v);
}

// A handler that may not see addresses that the program does not have.
static volatile long seen;
static void look(int, siginfo_t *, void *v)
{
	char *ip = (char *)((ucontext_t *)v)->uc_mcontext.gregs[REG_RIP];
	Dl_info info;
	if (!dladdr(ip, &info) && (ip < (char *)jit_code || ip >= (char *)jit_code + 4096))
		ADD(wrong, 1);
	seen = seen + 1;
}

int main(void)
{
	char line[64];
	long n;
	make_code();
	sem_init(&there, 0, 0);
	sem_init(&go, 0, 0);
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "jit %ld", &n) == 1) {
			long sum = 0;
			for (long i = 0; i < n; i++)
				sum += jit_code(i);
			say("jit %ld", sum);
		} else if (sscanf(line, "both %ld", &n) == 1) {
			long sum = 0;
			for (long i = 0; i < n; i++)
				sum += jit_code(i) + from_jit(i);
			say("both %ld", sum);
		} else if (sscanf(line, "hold %15s %ld", way, &n) == 2) {
			generated = !!strstr(line, "generated");
			pthread_create(&flying, NULL, fly, (void *)n);
			while (sem_wait(&there))
				;
			say("held");
		} else if (!strncmp(line, "let", 3)) {
			void *v;
			sem_post(&go);
			pthread_join(flying, &v);
			say("let %ld", (long)v);
		} else if (!strncmp(line, "next", 4)) {
			void *p = ask_next("malloc");
			CHECK(p != NULL);
			say("next %d", p != NULL);
		} else if (sscanf(line, "signals %ld", &n) == 1) {
			struct sigaction sa = {};
			sa.sa_sigaction = look;
			sa.sa_flags = SA_SIGINFO | SA_RESTART;
			sigaction(SIGALRM, &sa, NULL);
			struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = {};
			setitimer(ITIMER_REAL, &often, NULL);
			long sum = 0;
			for (seen = 0; seen < n;)
				sum = jit_code(7);
			setitimer(ITIMER_REAL, &never, NULL);
			say("signals %ld", sum);
		}
	}
	return verdict();
}

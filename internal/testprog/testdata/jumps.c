// Frames that are left, and stacks that are changed, without a return: longjmp,
// siglongjmp, signal handlers on an alternate stack, coroutines. A case's functions
// begin with its letters.
#include "rounds.h"
#include <semaphore.h>
#include <setjmp.h>
#include <ucontext.h>

// longjmp over two frames.
static jmp_buf lj;
REAL long lj_inner(long v) { if (v) longjmp(lj, v); return 0; }
REAL long lj_mid(long v) { return lj_inner(v) + 1; }
REAL long lj_outer(long v)
{
	int r = setjmp(lj);
	return r ? r + 1 : lj_mid(v);
}
static long longjmp_round(long i)
{
	long r = lj_outer(i + 1);
	CHECK(r == i + 2);
	return r;
}

// 1,000 jumps into one frame, then a call that returns.
static jmp_buf lo;
REAL long lo_inner(long v) { if (v) longjmp(lo, 1); return 7; }
REAL long lo_outer(long v)
{
	volatile long n = 0;
	setjmp(lo);
	if (++n <= 1000)
		return lo_inner(1);
	return lo_inner(0) + n + v;
}
static long loop_round(long i)
{
	long r = lo_outer(i);
	CHECK(r == i + 1008);
	return r;
}

// Recursion that a jump cuts to half its depth, again and again.
static jmp_buf cut_at;
REAL long cut_down(long n, long half)
{
	if (n == 0)
		longjmp(cut_at, 1);
	if (n == half && setjmp(cut_at))
		return n;
	return cut_down(n - 1, half) + 1;
}
static long cut_round(long i)
{
	long r = cut_down(8, 4);
	CHECK(r == 8);
	return r + i;
}

// siglongjmp out of a handler on an alternate stack.
static sigjmp_buf sj;
REAL void sj_leave(long v) { siglongjmp(sj, v); }
REAL void sj_handler(int sig) { sj_leave(sig); }
REAL long sj_inner(long v) { raise(SIGUSR1); return v; }
REAL long sj_outer(long v)
{
	int r = sigsetjmp(sj, 1);
	return r ? r + v : sj_inner(v);
}
static long sig_round(long i)
{
	long r = sj_outer(i);
	CHECK(r == SIGUSR1 + i);
	return r;
}

// A handler on an alternate stack that calls and returns.
static long as_seen;
REAL long as_called(long v) { return v * 3; }
REAL void as_handler(int sig) { as_seen += as_called(sig); }
REAL long as_work(long v) { raise(SIGUSR2); return as_called(v) + as_seen; }
static long alt_round(long i)
{
	as_seen = 0;
	long r = as_work(i);
	CHECK(r == 3 * i + 3 * SIGUSR2);
	return r;
}

// A coroutine that hands out numbers, and ends into uc_link.
static ucontext_t co_main, co_ctx;
static long co_value;
REAL void co_yield(long v) { co_value = v; swapcontext(&co_ctx, &co_main); }
REAL void co_body(void) { for (long n = 1; n <= 5; n++) co_yield(n); co_value = -1; }
REAL long co_resume(void) { swapcontext(&co_main, &co_ctx); return co_value; }
static void start_context(ucontext_t *c, ucontext_t *link, char *stack, size_t size, void (*f)(void))
{
	getcontext(c);
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = size;
	c->uc_link = link;
	makecontext(c, f, 0);
}
static long co_round(long i)
{
	static char stack[64 << 10];
	long sum = 0, v;
	start_context(&co_ctx, &co_main, stack, sizeof stack, co_body);
	while ((v = co_resume()) > 0)
		sum += v;
	CHECK(v == -1 && sum == 15);
	return sum + i;
}

// Coroutines that call each other in a ring, so that none of their calls ends in the
// order in which they began.
static ucontext_t ri_ctx[3], ri_main;
static long ri_sum;
REAL long ri_pass(long me, long v) { swapcontext(&ri_ctx[me], &ri_ctx[(me + 1) % 3]); return v + 1; }
REAL void ri_go(long me) { for (long n = 0; n < 4; n++) ri_sum += ri_pass(me, n); }
static void ri_first(void) { ri_go(0); setcontext(&ri_main); }
static void ri_second(void) { for (;;) ri_go(1); }
static void ri_third(void) { for (;;) ri_go(2); }
static long ring_round(long i)
{
	static char stack[3][64 << 10];
	void (*body[])(void) = { ri_first, ri_second, ri_third };
	volatile int done = 0;
	ri_sum = 0;
	for (int n = 0; n < 3; n++)
		start_context(&ri_ctx[n], NULL, stack[n], sizeof stack[n], body[n]);
	getcontext(&ri_main);
	if (!done++)
		setcontext(&ri_ctx[0]);
	CHECK(ri_sum == 10 + 6 + 6); // the others wait in their fourth call
	return ri_sum + i;
}

// A coroutine that two threads resume in turns.
static ucontext_t mt_ctx, mt_back;
static sem_t mt_turn[2];
static long mt_left, mt_sum;
REAL long mt_switch(long v) { swapcontext(&mt_ctx, &mt_back); return v; }
REAL void mt_body(void) { for (;;) mt_sum += mt_switch(mt_left); }
REAL void mt_resume(void) { swapcontext(&mt_back, &mt_ctx); }
static void *mt_thread(void *me)
{
	for (;;) {
		while (sem_wait(&mt_turn[(long)me]))
			;
		if (mt_left > 0) {
			mt_resume();
			mt_left--;
			sem_post(&mt_turn[!(long)me]);
			continue;
		}
		sem_post(&mt_turn[!(long)me]);
		return NULL;
	}
}
static long threads_round(long i)
{
	static char stack[64 << 10];
	mt_left = 10;
	mt_sum = 0;
	sem_init(&mt_turn[0], 0, 1);
	sem_init(&mt_turn[1], 0, 0);
	start_context(&mt_ctx, NULL, stack, sizeof stack, mt_body);
	pthread_t a = thread(mt_thread, 0), b = thread(mt_thread, 1);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	CHECK(mt_sum == 54); // 10 + 9 + … + 2: the tenth call is not resumed
	return mt_sum + i;
}

// A coroutine that is begun by a thread which ends, and is finished by another.
static ucontext_t or_ctx, or_back;
static long or_sum;
REAL long or_leave(long v) { swapcontext(&or_ctx, &or_back); return v; }
REAL void or_body(void) { or_sum = or_leave(1) + or_leave(2); }
REAL void *or_resume(void *arg) { swapcontext(&or_back, &or_ctx); return arg; }
static long orphan_round(long i)
{
	static char stack[64 << 10];
	or_sum = 0;
	start_context(&or_ctx, &or_back, stack, sizeof stack, or_body);
	for (int n = 0; n < 3; n++)
		pthread_join(thread(or_resume, n), NULL);
	CHECK(or_sum == 3);
	return or_sum + i;
}

int main(void)
{
	static char alt[64 << 10];
	stack_t ss = { .ss_sp = alt, .ss_size = sizeof alt };
	struct sigaction sa = { .sa_flags = SA_ONSTACK };
	sigaltstack(&ss, NULL);
	sa.sa_handler = sj_handler;
	sigaction(SIGUSR1, &sa, NULL);
	sa.sa_handler = as_handler;
	sigaction(SIGUSR2, &sa, NULL);
	return serve((struct round[]){
		{ "longjmp", longjmp_round },
		{ "loop", loop_round },
		{ "cut", cut_round },
		{ "siglongjmp", sig_round },
		{ "altstack", alt_round },
		{ "coroutine", co_round },
		{ "ring", ring_round },
		{ "threads", threads_round },
		{ "orphan", orphan_round },
		{ NULL },
	});
}

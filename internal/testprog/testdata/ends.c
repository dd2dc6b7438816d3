// Calls that end with their thread, their process or never, and calls that make other
// processes. "exit" and "abort" end the program inside three calls.
#include "rounds.h"
#include <execinfo.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unwind.h>

extern char **environ;

// pthread_exit, with a cleanup handler to run on the way.
static long pe_cleaned;
static void pe_cleanup(void *v) { ADD(pe_cleaned, (long)v); }
REAL void pe_inner(void *v) { pthread_exit(v); }
REAL void *pe_outer(void *v)
{
	pthread_cleanup_push(pe_cleanup, v);
	pe_inner(v);
	pthread_cleanup_pop(0);
	return NULL;
}
static long exit_round(long i)
{
	void *v;
	SET(pe_cleaned, 0);
	pthread_join(thread(pe_outer, i + 1), &v);
	CHECK((long)v == i + 1 && GET(pe_cleaned) == i + 1);
	return (long)v;
}

// pthread_cancel, deferred and asynchronous.
static sem_t ca_there;
static long ca_cleaned;
static void ca_cleanup(void *v) { ADD(ca_cleaned, (long)v); }
REAL void ca_wait(void) { sem_post(&ca_there); for (;;) pause(); }
REAL void ca_spin(void) { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL); sem_post(&ca_there); for (;;) ; }
REAL void *ca_outer(void *v)
{
	pthread_cleanup_push(ca_cleanup, v);
	if ((long)v % 2)
		ca_wait();
	ca_spin();
	pthread_cleanup_pop(0);
	return NULL;
}
static long cancel_round(long i)
{
	void *v;
	sem_init(&ca_there, 0, 0);
	SET(ca_cleaned, 0);
	for (long n = 1; n <= 2; n++) {
		pthread_t t = thread(ca_outer, n);
		while (sem_wait(&ca_there))
			;
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, &v) == 0 && v == PTHREAD_CANCELED);
	}
	CHECK(GET(ca_cleaned) == 3);
	return i;
}

// A thread that ends by the system call.
REAL long th_inner(void) { return syscall(SYS_exit, 0); }
REAL void *th_outer(void *v) { return (void *)(th_inner() + (long)v); }
static long thread_round(long i)
{
	CHECK(pthread_join(thread(th_outer, i), NULL) == 0);
	return i;
}

static long status_of(pid_t child)
{
	int status = -1;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

// vfork: the child shares the memory and this very frame; it calls, returns, and ends.
REAL long vf_back(long v) { return v + 5; }
REAL void vf_end(long v) { _exit(vf_back(v)); }
REAL void vf_exec(void) { char *argv[] = { (char *)"true", NULL }; execve("/bin/true", argv, environ); _exit(9); }
REAL long vf_outer(long v)
{
	pid_t child = vfork();
	if (child == 0)
		vf_end(v);
	long r = WEXITSTATUS(status_of(child));
	child = vfork();
	if (child == 0)
		vf_exec();
	return r + status_of(child);
}
static long vfork_round(long i)
{
	long r = vf_outer(i % 10);
	CHECK(r == i % 10 + 5);
	return r;
}

// fork: the child goes back through both frames.
static pid_t fo_child;
REAL long fo_inner(long v) { fo_child = fork(); return v + 1; }
REAL long fo_outer(long v) { return fo_inner(v) + 1; }
static long fork_round(long i)
{
	long r = fo_outer(i % 10);
	if (fo_child == 0)
		_exit(r);
	CHECK(status_of(fo_child) == r << 8 && r == i % 10 + 2);
	return r;
}

REAL long sp_system(long v) { char cmd[32]; snprintf(cmd, sizeof cmd, "exit %ld", v); return WEXITSTATUS(system(cmd)); }
REAL long sp_spawn(void)
{
	char *argv[] = { (char *)"false", NULL };
	pid_t child = 0;
	CHECK(posix_spawn(&child, "/bin/false", NULL, NULL, argv, environ) == 0);
	return WEXITSTATUS(status_of(child));
}
static long spawn_round(long i)
{
	long r = sp_system(i % 10 + 2) + sp_spawn();
	CHECK(r == i % 10 + 3);
	return r;
}

// 100 calls deep.
REAL long de_down(long n) { return n ? de_down(n - 1) + 1 : 0; }
static long deep_round(long i)
{
	long r = de_down(99);
	CHECK(r == 99);
	return r + i;
}

// What the unwinder and backtrace(3) see of three calls.
static void *bt_seen[16], *bt_execinfo[16];
static int bt_frames;
static _Unwind_Reason_Code bt_frame(struct _Unwind_Context *c, void *arg)
{
	if (bt_frames < 16)
		bt_seen[bt_frames++] = (void *)_Unwind_GetRegionStart(c);
	return _URC_NO_REASON;
}
REAL long bt_inner(long v)
{
	bt_frames = 0;
	_Unwind_Backtrace(bt_frame, NULL);
	return v + (backtrace(bt_execinfo, 16) >= 6);
}
REAL long bt_mid(long v) { return bt_inner(v) + 1; }
REAL long bt_outer(long v) { return bt_mid(v) + 1; }
static long backtrace_round(long i)
{
	void *want[] = { (void *)bt_inner, (void *)bt_mid, (void *)bt_outer, (void *)backtrace_round, (void *)serve };
	long r = bt_outer(i);
	for (int n = 0; n < 3; n++) {
		CHECK(bt_seen[n] == want[n]);
		CHECK(_Unwind_FindEnclosingFunction((char *)bt_execinfo[n] - 1) == want[n]);
	}
	CHECK(r == i + 3 && bt_frames >= 6); // main and what called it are there
	return r;
}

// Calls that the program does not come back from.
REAL long xi_last(long v) { return v + 1; }
static void xi_atexit(void) { say("last %ld", xi_last(1)); }
REAL void xi_inner(long abrt) { if (abrt) abort(); exit(7); }
REAL void xi_outer(long abrt) { xi_inner(abrt); say("back"); }
static long end_round(long i) { (void)i; xi_outer(0); return 0; }
static long abort_round(long i) { (void)i; xi_outer(1); return 0; }

// A thread that is always there to make a tracer's system calls: the others vfork.
static void *idle(void *unused) { for (;;) pause(); return unused; }

int main(void)
{
	thread(idle, 0);
	atexit(xi_atexit);
	return serve((struct round[]){
		{ "pthread_exit", exit_round },
		{ "cancel", cancel_round },
		{ "thread", thread_round },
		{ "vfork", vfork_round },
		{ "fork", fork_round },
		{ "spawn", spawn_round },
		{ "deep", deep_round },
		{ "backtrace", backtrace_round },
		{ "exit", end_round },
		{ "abort", abort_round },
		{ NULL },
	});
}

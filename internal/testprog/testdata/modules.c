// Loads and unloads libraries, which are numbered from 0 to 7. Built with -rdynamic: libplug.so
// counts in built and wrecked. Answers start with "did".
//
//	open N PATH     dlopen; "did ADDRESS" of its text, 0 if it fails
//	space N PATH    dlmopen into a namespace of its own
//	close N         dlclose
//	call N NAME K   NAME(i) for i below K: each result is added up, "did SUM"
//	yank N          unmaps library N behind the dynamic linker's back; no destructors will run
//	occupy N        maps memory full of breakpoints where library N was
//	vacate          unmaps that; it must be full of breakpoints still
//	cycle K PATH    K times: dlopen, plugged(K), calls(K), dlclose
//	start, stop     two threads that load nothing call foo
//	rest N          N threads wait, until the end
//	fork PATH       a child opens, calls plugged 100 times, closes, opens and calls again
//	exec PROG       is another program
//	spawn PROG      a child is; tell LINE has it do LINE and answers what it answers
//	spawn -         a child that stays this program
#include "prog.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>

long built, wrecked;

typedef long function(long);
static struct { void *handle; char *base, *end, *start; size_t size; } libs[8];
static int yanked;
static char *occupied;
static size_t occupied_size;
static long stopped;
static pthread_t callers[2];

REAL long foo(long v) { return 5 * v + 1; }

static int measure(struct dl_phdr_info *info, size_t size, void *arg)
{
	long n = (long)arg;
	struct link_map *map;
	if (dlinfo(libs[n].handle, RTLD_DI_LINKMAP, &map) != 0 || info->dlpi_addr != map->l_addr)
		return 0;
	libs[n].base = (char *)info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD)
			libs[n].end = (char *)((info->dlpi_addr + p->p_vaddr + p->p_memsz + 4095) & ~4095UL);
		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			libs[n].start = (char *)((info->dlpi_addr + p->p_vaddr) & ~4095UL);
			libs[n].size = (((info->dlpi_addr + p->p_vaddr) & 4095) + p->p_memsz + 4095) & ~4095UL;
		}
	}
	return 1;
}

static void load(long n, void *handle)
{
	libs[n].handle = handle;
	libs[n].start = NULL;
	if (handle)
		dl_iterate_phdr(measure, (void *)n);
	else
		dprintf(2, "%s\n", dlerror());
}

static long call(void *handle, const char *name, long times)
{
	function *f = (function *)dlsym(handle, name);
	long sum = 0;
	CHECK(f != NULL);
	for (long i = 0; f && i < times; i++)
		sum += f(i);
	return sum;
}

static void occupy(long n)
{
	occupied = mmap(libs[n].start, occupied_size = libs[n].size, PROT_READ | PROT_WRITE | PROT_EXEC,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(occupied == libs[n].start);
	memset(occupied, 0xcc, occupied_size);
}

static void vacate(void)
{
	for (size_t i = 0; i < occupied_size; i++)
		CHECK((unsigned char)occupied[i] == 0xcc);
	CHECK(munmap(occupied, occupied_size) == 0);
}

static void cycle(long times, const char *path)
{
	for (long i = 0; i < times; i++) {
		void *handle = dlopen(path, RTLD_NOW);
		CHECK(handle != NULL);
		CHECK(call(handle, "plugged", 2) == 1 + 30);
		CHECK(call(handle, "calls", 1) == 1 + 30);
		CHECK(dlclose(handle) == 0);
	}
}

static void *caller(void *arg)
{
	for (long v = 0; !GET(stopped); v++)
		CHECK(foo(v) == 5 * v + 1);
	return NULL;
}

static void *rests(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int child(const char *path)
{
	for (int i = 0; i < 2; i++) {
		void *handle = dlopen(path, RTLD_NOW);
		CHECK(handle && call(handle, "plugged", 100) == 29 * 4950 + 100);
		CHECK(dlclose(handle) == 0);
	}
	return GET(wrong) != 0;
}

static void fork_child(const char *path)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(child(path));
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static int to_child, from_child;

// answer passes on a line of the child's.
static void answer(void)
{
	char line[200];
	size_t n = 0;
	while (n < sizeof line - 1 && read(from_child, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
	say("%s", line);
}

static void spawn(const char *prog)
{
	int in[2], out[2];
	CHECK(pipe(in) == 0 && pipe(out) == 0);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		if (strcmp(prog, "-")) {
			execl(prog, prog, (char *)NULL);
			_exit(97);
		}
		say("ready");
		return;
	}
	to_child = in[1];
	from_child = out[0];
	answer();
}

static void run_threads(int run)
{
	SET(stopped, !run);
	for (int i = 0; i < 2; i++)
		if (run)
			callers[i] = thread(caller, i);
		else
			pthread_join(callers[i], NULL);
}

int main(int argc, char **argv)
{
	char line[600], text[500];
	long n, k;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "open %ld %499s", &n, text) == 2) {
			load(n, dlopen(text, RTLD_NOW));
			say("did %p", libs[n].start);
#ifdef LM_ID_NEWLM
		} else if (sscanf(line, "space %ld %499s", &n, text) == 2) {
			load(n, dlmopen(LM_ID_NEWLM, text, RTLD_NOW));
			say("did %p", libs[n].handle);
#endif
		} else if (sscanf(line, "close %ld", &n) == 1) {
			CHECK(dlclose(libs[n].handle) == 0);
			say("did");
		} else if (sscanf(line, "call %ld %499s %ld", &n, text, &k) == 3) {
			say("did %ld", call(libs[n].handle, text, k));
		} else if (sscanf(line, "occupy %ld", &n) == 1) {
			occupy(n);
			say("did");
		} else if (sscanf(line, "yank %ld", &n) == 1) {
			yanked = 1;
			CHECK(munmap(libs[n].base, libs[n].end - libs[n].base) == 0);
			say("did");
		} else if (!strcmp(line, "vacate\n")) {
			vacate();
			say("did");
		} else if (sscanf(line, "cycle %ld %499s", &k, text) == 2) {
			cycle(k, text);
			say("did");
		} else if (!strcmp(line, "start\n") || !strcmp(line, "stop\n")) {
			run_threads(line[2] == 'a');
			say("did");
		} else if (sscanf(line, "rest %ld", &k) == 1) {
			pthread_t t;
			while (k-- > 0)
				CHECK(pthread_create(&t, NULL, rests, NULL) == 0);
			say("did");
		} else if (sscanf(line, "fork %499s", text) == 1) {
			fork_child(text);
			say("did");
		} else if (sscanf(line, "spawn %499s", text) == 1) {
			spawn(text);
		} else if (!strncmp(line, "tell ", 5)) {
			CHECK(write(to_child, line + 5, strlen(line + 5)) == (ssize_t)strlen(line + 5));
			answer();
		} else if (sscanf(line, "exec %499s", text) == 1) {
			execl(text, text, (char *)NULL);
			CHECK(!"exec");
		} else
			CHECK(!"a known command");
	}
	if (yanked)
		_exit(verdict());
	return verdict();
}

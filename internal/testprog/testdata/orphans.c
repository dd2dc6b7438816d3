// Children that are killed while they have children of their own. "orphan N": N times a child, which forks six and is killed at some moment. When all have been killed the others call probed, and
// end: "orphans HITS UNTRACED", how many did, and how many of these had no tracer.
#include "prog.h"
#include <fcntl.h>
#include <sys/mman.h>

static struct {
	long hits, untraced;
} *shared;

REAL long probed(long n)
{
	__asm__ volatile("nop;nop;nop;nop;nop;nop" : "+r"(n));
	return n + 1;
}

static int traced(void)
{
	char status[4096];
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t n = read(fd, status, sizeof status - 1);
	close(fd);
	status[n > 0 ? n : 0] = 0;
	char *at = strstr(status, "TracerPid:");
	return at && atoi(at + 10);
}

static void orphan(int gate)
{
	char c;
	while (read(gate, &c, 1) < 0) // nobody writes: it opens at its end
		;
	if (!traced())
		ADD(shared->untraced, 1);
	CHECK(probed(1) == 2);
	ADD(shared->hits, 1);
	_exit(0);
}

static void orphans(long rounds)
{
	int gate[2], all[2];
	char c;
	CHECK(!pipe(gate) && !pipe(all));
	shared->hits = shared->untraced = 0;
	while (rounds-- > 0) {
		pid_t child = fork();
		if (child == 0) {
			close(gate[1]);
			for (int k = 0; k < 6; k++)
				if (fork() == 0)
					orphan(gate[0]);
			for (;;)
				pause();
		}
		usleep(rand() % 3000); // any moment
		CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	}
	close(gate[1]);
	close(gate[0]);
	close(all[1]);
	CHECK(read(all[0], &c, 1) == 0); // all have ended
	close(all[0]);
	say("orphans %ld %ld", shared->hits, shared->untraced);
}

int main(void)
{
	char line[64];
	long n;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	say("ready");
	while (hear(line, sizeof line))
		if (sscanf(line, "orphan %ld", &n) == 1)
			orphans(n);
	return verdict();
}

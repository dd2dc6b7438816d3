// "run N PATH": a thread loads and unloads the library PATH, while this one makes N children,
// each of which compares the library's code, if it has it, with the file. Then "ran SEEN": how
// many had it.
#include "prog.h"
#include <dlfcn.h>
#include <fcntl.h>

static char path[500];
static long stopped;

static void *loader(void *arg)
{
	while (!GET(stopped)) {
		void *handle = dlopen(path, RTLD_NOW);
		CHECK(handle != NULL);
		CHECK(dlclose(handle) == 0);
	}
	return NULL;
}

// look is a child's work: 1 if the library is there and as in its file, 0 if it is not there.
static int look(void)
{
	static char maps[1 << 16], text[1 << 16];
	unsigned long start, end, offset;
	char *line;
	ssize_t n = 0, r;
	int fd = open("/proc/self/maps", O_RDONLY);
	while ((r = read(fd, maps + n, sizeof maps - 1 - n)) > 0)
		n += r;
	for (line = strtok(maps, "\n"); line; line = strtok(NULL, "\n"))
		if (strstr(line, path) && strstr(line, " r-xp ") && sscanf(line, "%lx-%lx r-xp %lx", &start, &end, &offset) == 3) {
			r = pread(open(path, O_RDONLY), text, end - start < sizeof text ? end - start : sizeof text, offset);
			return r > 0 && memcmp(text, (void *)start, r) == 0 ? 1 : 2;
		}
	return 0;
}

int main(void)
{
	char line[600];
	long n, seen = 0;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "run %ld %499s", &n, path) != 2)
			continue;
		pthread_t t = thread(loader, 0);
		while (n-- > 0) {
			int status = 0;
			pid_t pid = fork();
			if (pid == 0)
				_exit(look());
			CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) < 2);
			seen += WEXITSTATUS(status) == 1;
		}
		SET(stopped, 1);
		pthread_join(t, NULL);
		say("ran %ld", seen);
	}
	return verdict();
}

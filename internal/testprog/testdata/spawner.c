// Executes another program, argument 1, in a child: "fork V", "vfork V", "spawn V" (posix_spawn), "shell V" (system), "grandchild V" (fork in a
// fork), "parent V" (which forks in its turn). V is its argument. Then "child STATUS".
#include "prog.h"
#include <spawn.h>

extern char **environ;

REAL long foo(long v) { return 3 * v; }

#ifdef TABLE
long TABLE[2] = { 1, 2 }; // a variable of the name that a function of the other program has
#endif

static int status_of(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run(const char *how, char *file, char *v)
{
	char *args[] = { file, v, strcmp(how, "parent") ? NULL : "fork", NULL }, command[4200];
	pid_t pid;
	if (!strcmp(how, "spawn")) {
		CHECK(posix_spawn(&pid, file, NULL, NULL, args, environ) == 0);
	} else if (!strcmp(how, "shell")) {
		snprintf(command, sizeof command, "%s %s; exit $?", file, v); // the shell forks for it
		int status = system(command);
		return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	} else if (!strcmp(how, "vfork")) {
		if (!(pid = vfork())) {
			execv(file, args);
			_exit(99);
		}
	} else if (!(pid = fork())) {
		if (!strcmp(how, "grandchild"))
			_exit(run("fork", file, v));
		execv(file, args);
		_exit(99);
	}
	return status_of(pid);
}

int main(int argc, char **argv)
{
	char line[64], how[32], v[32];
	CHECK(argc == 2);
	say("ready");
	while (hear(line, sizeof line)) {
		CHECK(sscanf(line, "%31s %31s", how, v) == 2);
		foo(atol(v));
		say("child %d", run(how, argv[1], v));
	}
	return verdict();
}

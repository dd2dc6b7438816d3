// Runs argv[1] as a child, and says on descriptor 4 its pid and how it ended. When
// descriptor 3 closes, it kills the child.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *watch(void *child)
{
	char c;
	while (read(3, &c, 1) > 0)
		;
	kill((pid_t)(long)child, SIGKILL);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;
	int status;

	fcntl(3, F_SETFD, FD_CLOEXEC);
	fcntl(4, F_SETFD, FD_CLOEXEC);
	pid_t child = fork();
	if (child == 0) {
		execv(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	close(0);
	close(1);
	dprintf(4, "pid %d\n", child);
	pthread_create(&t, NULL, watch, (void *)(long)child);
	while (waitpid(child, &status, 0) != child)
		;
	dprintf(4, "status %d signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 0,
		WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	return 0;
}

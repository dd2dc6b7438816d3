// Client asks a server, a child of its own, for the squares of numbers. It connects again when the connection is
// reset.
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in address = {.sin_family = AF_INET};

static void serve(int listening)
{
	for (;;) {
		int n, fd = accept(listening, NULL, NULL);
		while (read(fd, &n, sizeof n) == sizeof n) {
			n *= n;
			if (write(fd, &n, sizeof n) < 0)
				break;
		}
		close(fd);
	}
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
		perror("connect");
		exit(1);
	}
	return fd;
}

// square asks for n's square, up to three times.
static int square(int *fd, int n)
{
	for (int try = 1; try <= 3; try++) {
		int answer;
		if (send(*fd, &n, sizeof n, MSG_NOSIGNAL) == sizeof n && recv(*fd, &answer, sizeof answer, 0) == sizeof answer)
			return answer;
		printf("%d, try %d: %s\n", n, try, strerror(errno));
		close(*fd);
		*fd = dial();
	}
	return -1;
}

int main(void)
{
	socklen_t size = sizeof address;
	int fd, listening = socket(AF_INET, SOCK_STREAM, 0);
	pid_t child;

	if (bind(listening, (struct sockaddr *)&address, size) || listen(listening, 8) ||
	    getsockname(listening, (struct sockaddr *)&address, &size)) {
		perror("listen");
		return 1;
	}
	if ((child = fork()) == 0)
		serve(listening);
	fd = dial();
	for (int n = 1; n <= 4; n++)
		printf("%d: %d\n", n, square(&fd, n));
	kill(child, 9);
	return 0;
}

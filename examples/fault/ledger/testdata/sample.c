// Ledger adds the lines that it reads to a file and tells how many it has stored. It has a bug, unless it is compiled
// with -DFIXED.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// append stores one line, and returns -1 if that can't be done.
__attribute__((noinline)) static int append(int fd, const char *line, size_t length)
{
#ifndef FIXED
	return write(fd, line, length) < 0 ? -1 : 0;
#else
	while (length > 0) {
		ssize_t n = write(fd, line, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		line += n;
		length -= n;
	}
	return 0;
#endif
}

int main(int argc, char **argv)
{
	char line[256];
	int stored = 0, fd = argc == 2 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;

	if (fd < 0) {
		fprintf(stderr, "usage: ledger FILE\n");
		return 2;
	}
	while (fgets(line, sizeof line, stdin)) {
		if (append(fd, line, strlen(line))) {
			perror("ledger");
			return 1;
		}
		stored++;
	}
	printf("%d lines are stored\n", stored);
	return 0;
}

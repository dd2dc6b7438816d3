// Logger adds the lines that it reads to a file. While the disk is full it keeps them, and
// writes them as soon as there is room.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char kept[4096];
static size_t length;

// flush writes what is kept, or as much as it can.
static void flush(int fd)
{
	while (length) {
		ssize_t n = write(fd, kept, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			printf("%s: %zu bytes wait\n", strerror(errno), length);
			return;
		}
		length -= n;
		memmove(kept, kept + n, length);
	}
}

int main(int argc, char **argv)
{
	char line[256];
	int fd = argc == 2 ? open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;

	if (fd < 0) {
		fprintf(stderr, "usage: logger FILE\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOFBF, 4096); // its writes are at the end
	while (fgets(line, sizeof line, stdin)) {
		size_t n = strlen(line);
		if (length + n > sizeof kept) {
			printf("lost: %s", line);
			continue;
		}
		memcpy(kept + length, line, n);
		length += n;
		flush(fd);
	}
	printf("%zu bytes are not written\n", length);
	return length != 0;
}

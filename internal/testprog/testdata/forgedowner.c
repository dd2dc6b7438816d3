// A program in which a tracer seems to have left a region, whose owner is a process of the program's choice: its ID, its start time, and
// the inode number of its PID namespace are the arguments, and the version of the region.
#include "prog.h"
#include <stdint.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	struct { char magic[8]; uint32_t version, arenas; char arch[16]; uint32_t pid, slot; uint64_t start, ns; } head = {
		"gokprobe", atoi(argv[4]), 0, "amd64", atoi(argv[1]), 64, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
	};
	char line[64];
	int fd = memfd_create("gokprobe", 0);
	CHECK(ftruncate(fd, 1 << 20) == 0 && pwrite(fd, &head, sizeof head, 0) == sizeof head);
	CHECK(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	close(fd);
	say("ready");
	while (hear(line, sizeof line))
		;
	return verdict();
}

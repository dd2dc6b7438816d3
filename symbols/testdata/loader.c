/* Obeys "open PATH" and "close" (a library), "exec PATH", "remap" (anonymous memory in place of the
   library's code), "copy PATH" (maps the code a second time). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int __attribute__((noinline)) shared_name(void) { return 1; }

static void remap(void *code)
{
	static char kept[4096];
	void *page = (void *)((uintptr_t)code & ~(uintptr_t)4095);
	memcpy(kept, page, 4096);
	mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
	memcpy(page, kept, 4096);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

int main(void)
{
	char line[4096];
	void *lib = NULL;
	printf("ready %d\n", shared_name());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "open ", 5)) {
			lib = dlopen(line + 5, RTLD_NOW);
			printf("plugin_entry %p\n", lib ? dlsym(lib, "plugin_entry") : NULL);
		} else if (!strcmp(line, "close")) {
			dlclose(lib);
		} else if (!strcmp(line, "remap")) {
			remap(dlsym(lib, "plugin_entry"));
		} else if (!strncmp(line, "copy ", 5)) {
			printf("copy %p\n", mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(line + 5, O_RDONLY), 4096));
		} else if (!strncmp(line, "exec ", 5)) {
			execl(line + 5, line + 5, (char *)NULL);
		}
		printf("done 0\n");
		fflush(stdout);
	}
	return 0;
}

/* Loads and unloads a library by command: "open PATH", "close", "exec PATH". */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int __attribute__((noinline)) shared_name(void) { return 1; }

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
		} else if (!strncmp(line, "exec ", 5)) {
			execl(line + 5, line + 5, (char *)NULL);
		}
		printf("done 0\n");
		fflush(stdout);
	}
	return 0;
}

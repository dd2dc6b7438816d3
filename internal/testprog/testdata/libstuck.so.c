// A library whose loading never ends, with -shared -fPIC: preloaded, it keeps a program from its entry point.
#include <unistd.h>

__attribute__((constructor)) static void stuck(void)
{
	if (write(1, "loading\n", 8) == 8)
		for (;;)
			pause();
}

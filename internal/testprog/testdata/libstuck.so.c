// A library whose loading never ends, with -shared -fPIC: as an auditor (rtld-audit(7)), it keeps a program from loading its libraries.
#include <unistd.h>

__attribute__((constructor)) static void stuck(void)
{
	if (write(1, "loading\n", 8) == 8)
		for (;;)
			pause();
}

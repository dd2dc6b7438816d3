// A program whose names a test replaces by such as no terminal should see. "call N" calls the function N times, from a thread whose name,
// and with a string that, drives terminals too.
#include "prog.h"
#include <sys/prctl.h>

#define HOSTILE "\033[1m\xe2\x80\xae\xc2\x9b\xff\a"

REAL long evil_ABCDEFGHIJ(const char *s, long n) { return n + (s[10] == '\a'); }

static void *calls(void *n)
{
	prctl(PR_SET_NAME, HOSTILE);
	for (long i = 0; i < (long)n; i++)
		CHECK(evil_ABCDEFGHIJ(HOSTILE, i) == i + 1);
	return NULL;
}

int main(void)
{
	char line[64];
	long n;
	say("ready");
	while (hear(line, sizeof line))
		if (sscanf(line, "call %ld", &n) == 1) {
			pthread_join(thread(calls, n), NULL);
			say("called");
		}
	return verdict();
}

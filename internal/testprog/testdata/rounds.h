// Fixtures that are a list of cases. "run CASE N" plays N rounds of a case and says
// "ran CASE N sum S"; "loop CASE" says "looping" and plays rounds until the next line,
// then says "looped CASE N".
#include "prog.h"
#include <poll.h>

struct round {
	const char *name;
	long (*play)(long i); // checks what it does and returns a number that depends on it
};

static int spoken_to(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	return poll(&in, 1, 0) > 0;
}

static const struct round *find_round(const struct round *list, const char *name)
{
	for (; list->name; list++)
		if (!strcmp(list->name, name))
			return list;
	dprintf(2, "no case %s\n", name);
	_exit(97);
}

// serve obeys commands until the input ends, and gives the verdict.
__attribute__((unused)) static int serve(const struct round *list)
{
	char line[64], name[32];
	long n, sum;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "run %31s %ld", name, &n) == 2) {
			const struct round *r = find_round(list, name);
			sum = 0;
			for (long i = 0; i < n; i++)
				sum += r->play(i);
			say("ran %s %ld sum %ld", name, n, sum);
		} else if (sscanf(line, "loop %31s", name) == 1) {
			const struct round *r = find_round(list, name);
			say("looping");
			for (n = 0; !spoken_to(); n++)
				r->play(n % 1000);
			say("looped %s %ld", name, n);
		}
	}
	return verdict();
}

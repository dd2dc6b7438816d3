// What the programs share whose functions are probed instruction by instruction: a
// command does some work and prints a digest of all its results.
#include "prog.h"

#include <stdint.h>

static uint64_t digest; // FNV-1a

__attribute__((unused)) static void digest_bytes(const void *p, size_t n)
{
	for (const unsigned char *c = p; n--; c++)
		digest = (digest ^ *c) * 0x100000001b3;
}

// A generator of its own: the same numbers with every library.
static uint32_t seed;

__attribute__((unused)) static uint32_t number(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	return seed ^= seed << 5;
}

struct work {
	const char *name;
	void (*run)(void);
	void *function; // what run is about, in programs where that is the difference
};

static const struct work *current;

// serve obeys commands, which are names in works, until its input ends.
static int serve(const struct work *works)
{
	char line[128];

	say("ready");
	while (hear(line, sizeof line)) {
		const struct work *w = works;

		line[strcspn(line, "\n")] = 0;
		while (w->name && strcmp(w->name, line))
			w++;
		if (!w->name) {
			say("no work %s", line);
			continue;
		}
		digest = 0xcbf29ce484222325;
		seed = 0x9e3779b9;
		current = w;
		w->run();
		say("done %s %016llx", line, (unsigned long long)digest);
	}
	return verdict();
}

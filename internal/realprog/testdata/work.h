// What the programs share whose functions are probed instruction by instruction: a
// command does some work and prints a digest of all its results.
#include "prog.h"

#include <stdint.h>

static uint64_t digest; // FNV-1a

// How often a work calls the function that it is about; 0 if it does not count.
static long calls;

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

// is is its own comparison: strcmp may be what is probed.
static int is(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

// serve obeys commands, which are names in works, until its input ends.
static int serve(const struct work *works)
{
	char line[128];

	say("ready");
	while (hear(line, sizeof line)) {
		const struct work *w = works;

		line[strcspn(line, "\n")] = 0;
		while (w->name && !is(w->name, line))
			w++;
		if (!w->name) {
			say("no work %s", line);
			continue;
		}
		calls = 0;
		digest = 0xcbf29ce484222325;
		seed = 0x9e3779b9;
		current = w;
		w->run();
		say("done %s digest %016llx calls %ld", line, (unsigned long long)digest, calls);
	}
	return verdict();
}

// What the example probes: a function that gets an object, and one that describes such objects,
// for the program's own log.
#include <stdio.h>
#include <stdlib.h>

struct order {
	int number;
	double price;
};

__attribute__((noinline)) char *describe(const struct order *o)
{
	char *text = malloc(64);
	if (text)
		snprintf(text, 64, "order %d for %.2f", o->number, o->price);
	return text;
}

__attribute__((noinline)) double handle(const struct order *o)
{
	__asm__ volatile("");
	return o->price * 1.2;
}

int main(void)
{
	char line[16];
	struct order o = { 1, 9.95 };

	free(describe(&o));
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		handle(&o);
		o.number++;
		o.price *= 2;
	}
	return 0;
}

// What examples of packages probe: a shop that prices ten orders and delivers those that it can. It asks nobody, and says nothing if all is well.
#include <stdio.h>
#include <stdlib.h>

struct order {
	int number;
	const char *item;
	long count;
};

__attribute__((noipa)) long price(const struct order *o, double each)
{
	return o->count * (long)each;
}

__attribute__((noipa)) int deliver(int number)
{
	return number >= 0 ? 0 : -1;
}

int main(void)
{
	static const char *items[] = {"tea", "coffee", "cocoa"};
	int failed = 0;
	for (int i = 0; i < 10; i++) {
		struct order o = {i, items[i % 3], i + 1};
		if (price(&o, 2.5) < 0)
			abort();
		if (deliver(i))
			failed++;
	}
	if (failed)
		printf("%d orders were not delivered\n", failed);
	return 0;
}

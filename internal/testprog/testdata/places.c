// Local variables at lines. "work N": "sum S", of work(N). At the end "right".
#include "prog.h"

struct item {
	int count;
	short weight;
	char name[8];
};

static int inner(int v)
{
	static int calls;
	int twice = 2 * v;
	return twice + ++calls; // line 14
}

REAL long work(int n, struct item *it)
{
	long sum = 0;
	struct item own = { n, 7, "own" };
	for (int i = 0; i < n; i++) {
		long part = i * own.weight;
		sum += part; // line 23
		it->count += inner(i);
	}
	{
		int n = 5; // hides the parameter
		sum += n; // line 28
	}
	return sum + own.count;
}

int main(void)
{
	char line[64];
	int n;
	say("ready");
	while (hear(line, sizeof line)) {
		struct item it = { 100, 1, "it" };
		CHECK(sscanf(line, "work %d", &n) == 1);
		say("sum %ld", work(n, &it));
	}
	return verdict();
}

// Local variables at lines. "work N": "sum S", of work(N). At the end "right".
#include "prog.h"

struct item {
	int count;
	short weight;
	char name[8];
};

static int inner(int v)
{
	int twice = 2 * v;
	return twice + 1; // line 13
}

REAL long work(int n, struct item *it)
{
	long sum = 0;
	static int calls;
	struct item own = { n, 7, "own" };
	calls++;
	for (int i = 0; i < n; i++) {
		long part = i * own.weight;
		sum += part; // line 24
		it->count += inner(i);
	}
	{
		int n = 5; // hides the parameter
		sum += n; // line 29
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

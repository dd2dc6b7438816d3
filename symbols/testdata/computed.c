// Values that optimized code does not keep. Debug information tells how to compute them.
volatile long sink;
struct pair { int low, high; };
static struct pair table[4] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};

__attribute__((noinline)) static long use(long v)
{
	return v * 3 + (sink & 1);
}

// The last statement's code needs nothing of the parameters, which the caller knows.
__attribute__((noinline)) static long forgets(long a, int b, const char *text)
{
	long sum = a + 2 * b;
	sink += use(sum + text[0]);
	sink += use(5); // forgets
	return sink + 1;
}

// The parameters' registers are used again; the sum is computed from what is kept.
__attribute__((noinline)) static long computes(long a, int b)
{
	long twice = 2 * a + 7;
	unsigned short small = b + 3;
	struct pair *at = &table[a & 3];
	sink += use(1); // computes
	sink += use(twice);
	sink += use(small);
	return at->high + sink;
}

// What calls it last is a jump, so that its caller's caller is what it returns to.
__attribute__((noinline)) static long jumps(long a, long b)
{
	sink += use(b);
	return forgets(b, a, "jumps");
}

int main(int argc, char **argv)
{
	for (int i = 0; i < 3; i++) {
		sink += forgets(i + 20, 4, "text");
		sink += computes(i + argc, 1000);
		sink += jumps(i, 40);
	}
	return 0;
}

// GCC puts the value of these variables, which have no place, into their abbreviation: it takes ten bytes.
#include <limits.h>

int again(long x, int by);

#ifdef AGAIN
int again(long x, int by)
{
	long least = LONG_MIN + 1, alike = LONG_MIN + 1;
	return x > by || x == least || x == alike + by;
}
#else
int over(long x, int by)
{
	long least = LONG_MIN + 1, alike = LONG_MIN + 1;
	return x < by || x == least || x == alike + by;
}

int main(int argc, char **argv) { return over(argc, argc) + again(argc, argc) + (argv == 0); }
#endif

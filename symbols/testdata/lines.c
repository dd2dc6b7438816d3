#include <stdio.h>
static inline __attribute__((always_inline)) int twice(int x)
{
	return x * 2 + 1; /* line 4: inlined twice */
}
int __attribute__((noinline)) loop(int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++) /* line 9: two rows, one place */
		sum += twice(i);
	return sum + twice(n);
}
int main(int argc, char **argv)
{
	(void)argv;
	return loop(argc) == 0;
}

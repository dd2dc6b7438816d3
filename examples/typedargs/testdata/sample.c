// What the example probes: open_account with one parameter of each kind.
#include <stdio.h>

enum currency { EUR, USD };
struct date { short year; char month, day; };

__attribute__((noinline)) long open_account(const char *owner, long cents, double rate, enum currency c,
					    struct date since, const char *missing)
{
	__asm__ volatile("");
	return owner[0] + cents + (long)rate + c + since.year + !missing;
}

int main(void)
{
	char line[16];
	long n = 0;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin))
		n += open_account("Ada \"Countess\" Lovelace", -12345, 2.5, USD, (struct date){ 1843, 9, 5 }, NULL);
	return n == 0;
}

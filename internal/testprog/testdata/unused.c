// A function whose caller has no use for its result, and which has none for its second argument: the first
// instructions at either end overwrite those registers. "go N" makes N calls, then "went N".
#include "prog.h"

long drop(long v, long second);
__asm__(".text\n"
	".type give, @function\n"
	"give: xorl %esi, %esi; leaq 5(%rdi,%rsi), %rax; ret\n"
	".size give, . - give\n"
	".globl drop\n"
	".type drop, @function\n"
	"drop: subq $8, %rsp; call give; movl $7, %eax; xorl %ecx, %ecx; xorl %edx, %edx; movl %eax, %esi; addq $8, %rsp; ret\n"
	".size drop, . - drop\n");

int main(void)
{
	char line[64];
	long n;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "go %ld", &n) != 1)
			continue;
		for (long i = 0; i < n; i++)
			CHECK(drop(3 * i, 3 * i + 1) == 7);
		say("went %ld", n);
	}
	return verdict();
}

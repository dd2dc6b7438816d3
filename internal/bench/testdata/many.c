// 10,000 functions, f_0 to f_9999, and nothing to do.
#include <stdio.h>

__asm__(".text\n"
	".altmacro\n"
	".macro fn n\n"
	".balign 16\n"
	".type f_\\n, @function\n"
	"f_\\n: lea \\n+1000(%rdi), %rax\n"
	"ret\n"
	".size f_\\n, . - f_\\n\n"
	".endm\n"
	".set i, 0\n"
	".rept 10000\n"
	"fn %i\n"
	".set i, i + 1\n"
	".endr\n"
	".noaltmacro\n");

int main(void)
{
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

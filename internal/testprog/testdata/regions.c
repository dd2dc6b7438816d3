// Functions whose first instructions are short, and whose inner heads are reached in every
// way: by a loop, an indirect jump, a return, a jump table, from a signal's handler. N threads
// (argument 1, or 4). "go M": each calls them all M times, then "went". "start": they call until
// "stop", then "calls CALLS". "list": the functions' names, then "listed".
#include "prog.h"

static pthread_barrier_t gate;
static long limit, stopped, quit, calls;

#define FN(name, body) \
	__asm__(".pushsection .text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
		body "\n.size " #name ",.-" #name "\n.popsection"); \
	long name(long)

FN(g_push, "push %rbx; mov %rdi,%rbx; lea 1(%rbx),%rax; pop %rbx; ret");
FN(g_pushes, "push %rbx; push %rbp; push %r12; mov %rdi,%rax; pop %r12; pop %rbp; pop %rbx; inc %rax; ret");
FN(g_ret, "lea 1(%rdi),%rax; ret");
FN(g_short, "push %rdi; pop %rax; inc %eax; ret");
FN(g_loop, "xor %eax,%eax; mov $9,%ecx; 1: inc %eax; dec %ecx; jnz 1b; lea -8(%rax,%rdi),%rax; ret");
FN(g_indirect, "push %rbx; lea 1f(%rip),%rax; test $1,%dil; jz 1f; jmp *%rax; nop; 1: mov %rdi,%rbx; xor %eax,%eax; lea 1(%rbx),%rax; pop %rbx; ret");
FN(g_entered, "lea 1f(%rip),%rax; jmp *%rax; 2: push %rdi; 1: nop; nop; nop; lea 1(%rdi),%rax; ret");
FN(g_calls, "sub $8,%rsp; lea g_leaf(%rip),%rax; call *%rax; nop; nop; add $8,%rsp; ret");
FN(g_calls2, "push %rbx; mov %rdi,%rbx; call g_leaf; xchg %rax,%rbx; xchg %rax,%rbx; pop %rbx; ret");
FN(g_callmem, "push %rbx; lea g_leaf(%rip),%rbx; push %rbx; sub $8,%rsp; call *8(%rsp); add $16,%rsp; pop %rbx; ret");
FN(g_leaf, "lea 1(%rdi),%rax; ret");
FN(g_flags, "cmp $5,%rdi; nop; setae %al; nop; jb 1f; nop; lea 1(%rdi),%rax; ret; 1: lea 1(%rdi),%rax; nop; nop; ret");
FN(g_carry, "mov %rdi,%rax; stc; nop; nop; adc $0,%rax; clc; std; cld; ret");
FN(g_redzone, "mov %rdi,-8(%rsp); mov %rdi,-120(%rsp); nop; nop; mov -8(%rsp),%rax; xor -120(%rsp),%rax; nop; lea 1(%rax,%rdi),%rax; ret");
FN(g_riprel, "push %rbx; mov g_one(%rip),%eax; mov g_one(%rip),%ebx; cmp %eax,%ebx; jne 1f; cmpl $1,g_one(%rip); 1: lea (%rax,%rdi),%rax; pop %rbx; ret");
FN(g_table, "mov %rdi,%rax; and $3,%eax; lea 5f(%rip),%rcx; movslq (%rcx,%rax,4),%rax; add %rcx,%rax; jmp *%rax;"
	" 1: nop; 2: nop; 3: nop; 4: lea 1(%rdi),%rax; ret; .pushsection .rodata; .p2align 2; 5: .long 1b-5b, 2b-5b, 3b-5b, 4b-5b; .popsection");
FN(g_tail, "inc %rdi; nop; jmp 1f; nop; 1: dec %rdi; jmp g_leaf");
FN(g_strings, "push %rdi; push %rsi; sub $64,%rsp; cld; mov %rsp,%rdi; mov $64,%ecx; mov $7,%al; rep stosb; lea -64(%rdi),%rdi; mov $64,%ecx; repe scasb;"
	" add $64,%rsp; pop %rsi; pop %rdi; lea 1(%rdi),%rax; ret");
FN(g_loopinsn, "mov $5,%ecx; xor %eax,%eax; 1: add $1,%eax; loop 1b; jrcxz 2f; ud2; 2: lea -4(%rax,%rdi),%rax; ret");
FN(g_many, "xor %eax,%eax; test %rdi,%rdi; js 1f; nop; 1: push %rax; push %rdi; pop %rax; pop %rcx; lea 1(%rax,%rcx),%rax; ret; .p2align 4");
FN(g_last, "lea 1(%rdi),%rax; ret");

int g_one = 1;

static const struct { const char *name; long (*f)(long); } all[] = {
#define F(n) { #n, n }
	F(g_push), F(g_pushes), F(g_ret), F(g_short), F(g_loop), F(g_indirect), F(g_entered), F(g_calls), F(g_calls2), F(g_callmem),
	F(g_leaf), F(g_flags), F(g_carry), F(g_redzone), F(g_riprel), F(g_table), F(g_tail), F(g_strings), F(g_loopinsn), F(g_many), F(g_last),
};
enum { FUNCTIONS = sizeof all / sizeof *all };

static void handler(int sig) { CHECK(g_push(sig) == sig + 1); }

static void *worker(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&gate);
		if (GET(quit))
			return NULL;
		long n = 0;
		for (; n < GET(limit) && !GET(stopped); n++)
			for (int i = 0; i < FUNCTIONS; i++)
				CHECK(all[i].f(n) == n + 1);
		ADD(calls, n);
		pthread_barrier_wait(&gate);
	}
}

int main(int argc, char **argv)
{
	static pthread_t t[64];
	long n = argc > 1 ? atol(argv[1]) : 4;
	char line[64];
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &act, NULL);
	pthread_barrier_init(&gate, NULL, n + 1);
	for (long i = 0; i < n; i++)
		t[i] = thread(worker, i);
	say("ready");
	while (hear(line, sizeof line)) {
		if (line[0] == 'l') {
			for (int i = 0; i < FUNCTIONS; i++)
				say("fn %s", all[i].name);
			say("listed");
			continue;
		}
		int go = sscanf(line, "go %ld", &limit);
		if (go != 1)
			limit = 1L << 62;
		calls = stopped = 0;
		pthread_barrier_wait(&gate);
		if (go != 1 && hear(line, sizeof line)) // stop
			SET(stopped, 1);
		pthread_barrier_wait(&gate);
		say("%s %ld", go == 1 ? "went" : "calls", calls);
	}
	SET(quit, 1);
	pthread_barrier_wait(&gate);
	for (long i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	return verdict();
}

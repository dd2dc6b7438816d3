// What can't be probed, in a program that is right: "rough" runs all of it.
#include "prog.h"
#include <stddef.h>

extern char table[], seq_first[], seq_inside[], seq_behind[];
long lookup(long i), sequence(long n), narrow(long v), own(long v);

asm(".text\n"
    // A table between functions, as hand-written assembly has them.
    ".globl table\n.type table,@object\ntable:\n\t.quad 10,20,30,40\n.size table,.-table\n"
    ".globl lookup\n.type lookup,@function\nlookup:\n\tlea table(%rip),%rax\n\tmov (%rax,%rdi,8),%rax\n\tret\n.size lookup,.-lookup\n"
    // A restartable sequence: five additions that a stop would abort.
    ".globl sequence,seq_first,seq_inside,seq_behind\n.type sequence,@function\n"
    "sequence:\n\tmov %rdi,%rax\n"
    "seq_first:\n\tadd $1,%rax\n\tadd $1,%rax\n"
    "seq_inside:\n\tadd $1,%rax\n\tadd $1,%rax\n\tadd $1,%rax\n"
    "seq_behind:\n\tret\n\t.long 0x53053053\nseq_abort:\n\tmov $-1,%rax\n\tret\n.size sequence,.-sequence\n"
    ".pushsection __rseq_cs,\"aw\"\n.balign 32\n"
    "seq_cs:\n\t.long 0,0\n\t.quad seq_first,seq_behind-seq_first,seq_abort\n.popsection\n"
    // Never executed: a branch whose length depends on the processor.
    ".globl narrow\n.type narrow,@function\nnarrow:\n\tmov %rdi,%rax\n\tret\n\t.byte 0x66,0xe9,0,0,0,0\n\tret\n.size narrow,.-narrow\n");

// run enters the sequence as librseq does, if the C library has registered the thread.
static long run(long n)
{
	extern const ptrdiff_t __rseq_offset __attribute__((weak));
	extern const unsigned __rseq_size __attribute__((weak));
	extern char seq_cs[];
	if (&__rseq_size && __rseq_size) {
		char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
		*(char *volatile *)(area + 8) = seq_cs;
	}
	return sequence(n);
}

int main(void)
{
	char line[100];
	long v;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "rough %ld", &v) == 1) {
			long got = run(v);
			CHECK(got == v + 5 || got == -1);
			CHECK(lookup(2) == 30 && narrow(v) == v);
			say("did");
		}
	}
	return verdict();
}

// Functions that leave by a jump to another: to be built with -O2. Each call returns to
// where the first of its chain was called.
#include "rounds.h"

REAL long ch_last(long v) { return 3 * v; }
REAL long ch_mid(long v) { return ch_last(v + 1); }
REAL long ch_first(long v) { return ch_mid(v + 1); }
static long chain_round(long i)
{
	long r = ch_first(i);
	CHECK(r == 3 * i + 6);
	return r;
}

// Two that call each other, 40 jumps in one frame.
long mu_odd(long n, long v);
REAL long mu_even(long n, long v) { return n ? mu_odd(n - 1, v + 1) : v; }
REAL long mu_odd(long n, long v) { return n ? mu_even(n - 1, v + 2) : -v; }
static long mutual_round(long i)
{
	long r = mu_even(40, i);
	CHECK(r == i + 60);
	return r;
}

// A function that jumps to its own start.
long se_self(long n, long v);
asm(".text\n.globl se_self\n.type se_self,@function\nse_self:\n\ttest %rdi,%rdi\n\tje 1f\n"
    "\tdec %rdi\n\tadd $3,%rsi\n\tjmp se_self\n1:\tmov %rsi,%rax\n\tret\n.size se_self,.-se_self\n");
static long self_round(long i)
{
	long r = se_self(20, i);
	CHECK(r == i + 60);
	return r;
}

// Through a pointer.
REAL long po_twice(long v) { return 2 * v; }
REAL long po_thrice(long v) { return 3 * v; }
static long (*volatile po_to[])(long) = { po_twice, po_thrice };
REAL long po_call(long v) { return po_to[v & 1](v + 1); }
static long pointer_round(long i)
{
	long r = po_call(2 * i) + po_call(2 * i + 1);
	CHECK(r == 2 * (2 * i + 1) + 3 * (2 * i + 2));
	return r;
}

// A chain in a recursion: re_down calls re_step, which jumps to re_down.
long re_step(long n);
REAL long re_down(long n) { return n ? re_step(n - 1) + 1 : 0; }
REAL long re_step(long n) { return re_down(n); }
static long recursion_round(long i)
{
	long r = re_down(30);
	CHECK(r == 30);
	return r + i;
}

// From one function to another in the loader's hands: lazily bound, through the PLT.
REAL long pl_length(const char *s) { return strlen(s); }
static long plt_round(long i)
{
	static const char text[] = "0123456789";
	long r = pl_length(text + i % 10);
	CHECK(r == 10 - i % 10);
	return r;
}

// Over its own end into the next one, as strcasecmp of the C library into strcasecmp_l.
long fa_first(long v), fa_last(long v);
asm(".text\n.globl fa_first\n.type fa_first,@function\nfa_first:\n\tlea 3(%rdi),%rdi\n\tlea 1(%rdi),%rdi\n.size fa_first,.-fa_first\n"
    ".globl fa_last\n.type fa_last,@function\nfa_last:\n\tlea (%rdi,%rdi),%rax\n\tlea 1(%rax),%rax\n\tret\n.size fa_last,.-fa_last\n");
static long fall_round(long i)
{
	long r = fa_first(i) + fa_last(i);
	CHECK(r == 4 * i + 10);
	return r;
}

int main(void)
{
	return serve((struct round[]){
		{ "chain", chain_round },
		{ "mutual", mutual_round },
		{ "self", self_round },
		{ "pointer", pointer_round },
		{ "recursion", recursion_round },
		{ "plt", plt_round },
		{ "fall", fall_round },
		{ NULL },
	});
}

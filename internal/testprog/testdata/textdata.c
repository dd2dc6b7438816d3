// Data within functions' sizes, as hand-written assembly has it. "sum" calls all functions and compares their results, and every byte of
// that data, with what they were at the start. Section datamap has where data begins and ends.
#include "prog.h"

#define DATA ".pushsection datamap,\"a\"\n.long 1f-.,2f-.\n.popsection\n1:\t"
#define END "\n2:\t"
#define FN(name) ".globl " name "\n.type " name ",@function\n" name ":\n\t"
#define SIZE(name) "\n.size " name ",.-" name "\n"
#define LIKE_CODE ".byte 0x55,0x48,0x89,0xe5,0xb8,1,0,0,0,0x5d,0xc3"

asm(".text\n"
    FN("f_ret") "lea 1,%eax\n\tret\n" DATA LIKE_CODE END SIZE("f_ret")
    FN("f_jmp") "jmp 3f\n" DATA LIKE_CODE END "3: mov $2,%eax\n\tret" SIZE("f_jmp")
    FN("f_str") "call 3f\n" DATA ".asciz \"text behind a call\"" END "3: pop %rax\n\tmovzbl (%rax),%eax\n\tret" SIZE("f_str")
    FN("f_exit") "test %edi,%edi\n\tje 3f\n\txor %edi,%edi\n\tmov $231,%eax\n\tsyscall\n" DATA "pushq $1\n\tpop %rax\n\tret" END "3: mov $4,%eax\n\tret" SIZE("f_exit")
    FN("f_gone") "test %edi,%edi\n\tjne 3f\n\tmov $5,%eax\n\tret\n3: call gone\n" DATA ".asciz \"this never comes back, they say\"" END SIZE("f_gone")
    FN("f_table") "lea 4f(%rip),%rdx\n\tcmp $3,%edi\n\tja 9f\n\tmov %edi,%edi\n\tmovslq (%rdx,%rdi,4),%rax\n\tadd %rdx,%rax\n\tjmp *%rax\n"
	"5: mov $10,%eax\n\tret\n6: mov $11,%eax\n\tret\n7: mov $12,%eax\n\tret\n"
	DATA "4: .long 5b-4b,6b-4b,7b-4b,9f-4b" END "9: mov $13,%eax\n\tret" SIZE("f_table")
    ".pushsection .data.rel.ro,\"aw\"\n.balign 8\ngoto_table: .quad goto_0,goto_1,goto_2\n.globl goto_table\n.popsection\n"
    FN("f_goto") "lea goto_table(%rip),%rdx\n\tmov %edi,%edi\n\tjmp *(%rdx,%rdi,8)\n" DATA LIKE_CODE END
	"goto_0: mov $20,%eax\n\tret\ngoto_1: mov $21,%eax\n\tret\n" DATA "push %rbp\n\tnop\n\tret" END "goto_2: mov $22,%eax\n\tret" SIZE("f_goto")
    ".pushsection .data.rel.ro,\"aw\"\n.balign 8\n.quad 0\n.globl opaque_table\nopaque_table: .quad opaque_0,opaque_1\n.popsection\n"
    FN("f_opaque") "jmp *(%rsi,%rdi,8)\n" DATA LIKE_CODE END "opaque_0: mov $30,%eax\n\tret\nopaque_1: mov $31,%eax\n\tret" SIZE("f_opaque")
    FN("f_lea") "lea 3f(%rip),%rcx\n\tmov $40,%eax\n\tjmp *%rcx\n" DATA LIKE_CODE END "3: ret" SIZE("f_lea")
    FN("f_konst") "lea 4f(%rip),%rcx\n\tmovslq %edi,%rdi\n\tmov (%rcx,%rdi,4),%eax\n\tret\n" DATA "4: .long 50,51,52,53" END "nop\n\tret" SIZE("f_konst")
    FN("f_nops") "mov 4f(%rip),%eax\n\tret\n" DATA "4: .long 0x90909090,0x90909090,0xcccccccc,0xcccccccc" END SIZE("f_nops")
    FN("f_cold") "test %edi,%edi\n\tjne f_cold.cold\n\tmov $60,%eax\n\tret\n" DATA LIKE_CODE END "f_cold_back: add $2,%eax\n\tret" SIZE("f_cold")
    ".balign 64\n" FN("f_cold.cold") "mov $59,%eax\n\t.byte 0xe9\n\t.long f_cold_back-.-4" SIZE("f_cold.cold"));

int f_ret(void), f_jmp(void), f_str(void), f_exit(int), f_gone(int), f_table(int), f_goto(int), f_lea(void), f_konst(int), f_nops(void), f_cold(int);
int f_opaque(long, void *);
extern char opaque_table[];
__attribute__((noreturn, used)) void gone(void) { _exit(97); }

// What GCC makes of a switch.
REAL int f_switch(int n, int x)
{
	switch (n) {
	case 0: return x * 3;
	case 1: return x / 7;
	case 2: return x ^ 0x55;
	case 3: return x << 4 | 1;
	case 4: return -x;
	case 5: return x % 11;
	case 6: return x & 0x70;
	}
	return 1;
}

typedef unsigned char byte;
extern int __start_datamap[], __stop_datamap[]; // each relative to itself
static byte before[4096];

static long each(int check)
{
	long n = 0;
	for (int *r = __start_datamap; r < __stop_datamap; r += 2)
		for (byte *p = (byte *)r + r[0]; p < (byte *)(r + 1) + r[1]; p++, n++)
			if (check)
				CHECK(before[n] == *(volatile byte *)p);
			else
				before[n] = *p;
	return n;
}

static void calls(void)
{
	CHECK(f_ret() == 1);
	CHECK(f_jmp() == 2);
	CHECK(f_str() == 't');
	CHECK(f_exit(0) == 4);
	CHECK(f_gone(0) == 5);
	for (int i = 0; i < 6; i++)
		CHECK(f_table(i) == 10 + (i < 3 ? i : 3));
	for (int i = 0; i < 3; i++)
		CHECK(f_goto(i) == 20 + i);
	CHECK(f_opaque(0, opaque_table) == 30 && f_opaque(1, opaque_table) == 31);
	CHECK(f_lea() == 40);
	for (int i = 0; i < 4; i++)
		CHECK(f_konst(i) == 50 + i);
	CHECK(f_nops() == (int)0x90909090);
	CHECK(f_cold(0) == 60 && f_cold(1) == 61);
	CHECK(f_switch(0, 100) == 300 && f_switch(1, 100) == 14 && f_switch(2, 100) == 0x31 && f_switch(3, 100) == 0x641 && f_switch(4, 100) == -100);
}

int main(void)
{
	char line[64];
	each(0);
	say("ready");
	while (hear(line, sizeof line))
		if (!strncmp(line, "sum", 3)) {
			calls();
			say("sum %ld wrong %ld", each(1), GET(wrong));
		}
	return verdict();
}

// What the conformance tests of kprobes ask of a program, a command each: "call FUNC V" prints
// "ret R"; "local" prints "at A offset O value V" of a thread-local variable; "page" prints
// "at A" of executable memory that no symbol covers and "run" "ret R" of what is there; "bump N"
// calls counted N times in each of 4 threads and prints "did N".
#include "prog.h"
#include <sys/mman.h>

static _Thread_local long local = 4711;
static long (*page)(long);
static long counted_calls;

REAL long third(long v) { return v / 3; }
REAL long counted(long v) { return v + 1; }
REAL long nested(long v) { return v ? nested(v - 1) + third(v) + 1 : 0; }
// Three parts such as a compiler splits off.
REAL long split_const(long v) __asm__("third.constprop.0");
REAL long split_const(long v) { return v / 3 + 2; }
REAL long split_cold(long v) __asm__("third.cold");
REAL long split_cold(long v) { return v / 3 + 3; }
REAL long split_warm(long v) __asm__("third.warm");
REAL long split_warm(long v) { return v / 3 + 4; }

// Each kind of way on from an instruction; the label at_NAME is the instruction.
#define INSN(name, before, insn, after) \
	".globl " #name ",at_" #name "\n.type " #name ",@function\n" #name ":\n" before "\nat_" #name ":\n" insn "\n" after "\n.size " #name ",.-" #name "\n"
asm(".text\n"
	INSN(go_next, "lea 1(%rdi),%rax", "add $2,%rax", "ret")
	INSN(go_jump, "lea 1(%rdi),%rax", "jmp 1f", "ud2\n1: add $3,%rax\nret")
	INSN(go_taken, "lea 1(%rdi),%rax\ncmp %rax,%rax", "je 1f", "ud2\n1: add $4,%rax\nret")
	INSN(go_past, "lea 1(%rdi),%rax\ncmp %rax,%rax", "jne 1f", "add $5,%rax\nret\n1: ud2")
	INSN(go_call, "sub $8,%rsp", "call third", "add $8,%rsp\nret")
	INSN(go_return, "lea 6(%rdi),%rax", "ret", "")
	INSN(go_indirect, "lea 1(%rdi),%rax\nlea 1f(%rip),%rcx", "jmp *%rcx", "ud2\n1: ret")
	INSN(go_kernel, "mov $39,%eax", "syscall", "lea 7(%rdi),%rax\nret")
	INSN(undecodable, "jmp at_undecodable\n.byte 6", "nop", "lea 8(%rdi),%rax\nret"));
#define GO(f) f(go_next) f(go_jump) f(go_taken) f(go_past) f(go_call) f(go_return) f(go_indirect) f(go_kernel) f(undecodable)
#define DECLARE(name) long name(long);
GO(DECLARE)

#define F(name) { #name, name },
static struct { const char *name; long (*f)(long); } funcs[] = { F(third) F(counted) F(nested) F(split_const) F(split_cold) GO(F) };

static long call(const char *name, long v)
{
	for (size_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
		if (!strcmp(funcs[i].name, name))
			return funcs[i].f(v);
	CHECK(!"a known function");
	return 0;
}

static void *bump(void *n)
{
	for (long i = 0; i < (long)n; i++)
		ADD(counted_calls, counted(i) == i + 1);
	return NULL;
}

int main(void)
{
	char line[128], name[64];
	long v;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %63s %ld", name, &v) == 2) {
			say("ret %ld", call(name, v));
		} else if (!strcmp(line, "local\n")) {
			say("at %lu offset %lu value %ld", (long)&local, (long)&local - (long)__builtin_thread_pointer(), local);
		} else if (!strcmp(line, "page\n")) {
			page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(page != MAP_FAILED);
			memcpy(page, "\x48\x8d\x47\x09\xc3", 5); // lea 9(%rdi),%rax; ret
			CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
			say("at %ld", (long)page);
		} else if (sscanf(line, "run %ld", &v) == 1) {
			say("ret %ld", page(v));
		} else if (sscanf(line, "bump %ld", &v) == 1) {
			pthread_t t[4];
			counted_calls = 0;
			for (int i = 0; i < 4; i++)
				t[i] = thread(bump, v);
			for (int i = 0; i < 4; i++)
				pthread_join(t[i], NULL);
			say("did %ld", counted_calls);
		} else
			CHECK(!"a known command");
	}
	return verdict();
}

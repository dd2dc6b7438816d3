// A program that writes a breakpoint of its own into code that it has generated. "call" calls that code; "own" puts the breakpoint over its first
// instruction, which has one byte; "plain" puts the instruction back; "where" tells its address.
#include "prog.h"
#include <sys/mman.h>
#include <ucontext.h>

static unsigned char *code;
static volatile long traps;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	ucontext_t *c = context;
	CHECK((unsigned char *)c->uc_mcontext.gregs[REG_RIP] == code + 1);
	traps++; // the instruction does nothing, so the code goes on behind the breakpoint
}

int main(void)
{
	static const unsigned char bytes[] = { 0x90, 0x48, 0x8d, 0x47, 0x01, 0x48, 0x83, 0xc0, 0x02, 0x48, 0x83, 0xe8, 0x02, 0x48, 0x85, 0xc0, 0x0f, 0x1f, 0x00, 0xc3 };
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	char line[64];
	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(code != MAP_FAILED);
	memcpy(code, bytes, sizeof bytes);
	CHECK(sigaction(SIGTRAP, &sa, NULL) == 0);
	say("ready");
	while (hear(line, sizeof line)) {
		if (!strcmp(line, "own\n"))
			code[0] = 0xcc;
		else if (!strcmp(line, "plain\n"))
			code[0] = bytes[0];
		else if (!strcmp(line, "call\n"))
			CHECK(((long (*)(long))code)(5) == 6);
		else
			CHECK(!strcmp(line, "where\n"));
		say("did %p traps %ld byte %x", code, traps, code[0]);
	}
	return verdict();
}

// Runs single instructions from exactly known states and writes down what became
// of everything. No libc, no thread-local storage, no vector code: nothing of the
// program stands between setting a state up and the instruction.
//
// Each case is entered by rt_sigreturn(2), which loads all registers at once, and
// left by the signal that follows: a fault of the instruction, or the trap of an
// int3 that it runs into; some cases go on from there until the next signal, or the
// one after. argv[1] is a file that is shared with the test; see
// layout_test.go for its contents. Commands on the
// standard input: load, run, and pelt or pslow, which are run under a storm of alarms.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

enum {
	CASES = 512, PATCHES = 8, DIFFS = 16, BEFORE = 2, ALARMS = 256, XSAVE = 3072, FEATURES = 8,
	CODE_SIZE = CASES * 512, LAND_SIZE = 0x10000, AREA = 0x2000, AREAS = 3, MARGIN = 0x2000,
};
#define RESERVED 0x40000000ul
#define RESERVED_SIZE 0x40000000ul
#define CODE 0x40100000ul
#define LAND 0x40300000ul
#define FSBASE (area_at[0] + 0x800)
#define GSBASE (area_at[1] + 0x400)
static const u64 area_at[AREAS] = {0x41000000, 0x42000000, 0x43000000};

struct word { u64 at, value; };
struct input {
	u64 reg[16]; // as in struct sigcontext: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp
	u64 rip, rflags, signals, npatches; // signals to take, 0 if there is no such case
	struct word patch[PATCHES];
	u8 xsave[XSAVE];
};
struct output {
	u64 signo, code, addr;
	u64 reg[16], rip, rflags, selectors, err, trapno, oldmask, cr2;
	u64 seg[4], base[2]; // ds, es, fs, gs; fs, gs
	u64 hash, ndiffs;
	struct { u64 signo, code, addr, rip, rflags; } before[BEFORE]; // earlier signals
	struct word diff[DIFFS];
	u8 xsave[XSAVE];
};
static struct shared {
	u64 current, taken, xfeatures, xsize, keeps_pointers, own[3], nalarms, alarms[ALARMS];
	struct { u64 offset, size; } feature[FEATURES];
	u8 pad[4096 - 72 - 8 * ALARMS - 16 * FEATURES];
	u8 code[CODE_SIZE];
	u64 memory[AREAS][AREA / 8];
	struct input in[CASES];
	struct output out[CASES];
} *sh;

struct sigcontext {
	u64 reg[16], rip, rflags;
	u16 cs, gs, fs, ss;
	u64 err, trapno, oldmask, cr2;
	u8 *fpstate;
	u64 reserved[8];
};
struct stack { u64 sp; int flags; u64 size; };
struct ucontext {
	u64 flags;
	u64 link;
	struct stack stack;
	struct sigcontext mc;
	u64 sigmask;
};
struct siginfo { int signo, err, code, pad; u64 addr; };
struct sigaction { void *handler; u64 flags; void *restorer; u64 mask; };

static struct { u64 pretcode; struct ucontext uc; u8 rest[256]; } frame;
static u8 image[XSAVE + 64] __attribute__((aligned(64)));
static u8 altstack[65536] __attribute__((aligned(64)));
u64 saved_sp;

enum {
	READ = 0, WRITE = 1, OPEN = 2, MMAP = 9, MPROTECT = 10, RT_SIGACTION = 13, SETITIMER = 38, SIGALTSTACK = 131,
	ARCH_PRCTL = 158, SETAFFINITY = 203, GETAFFINITY = 204, EXIT_GROUP = 231,
	SET_GS = 0x1001, SET_FS = 0x1002, GET_FS = 0x1003, GET_GS = 0x1004,
};

static long call6(long nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	long ret;
	register u64 r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
	asm volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return ret;
}
#define call3(nr, a, b, c) call6(nr, (u64)(a), (u64)(b), (u64)(c), 0, 0, 0)

static void die(int status)
{
	call3(EXIT_GROUP, status, 0, 0);
	for (;;)
		asm volatile("ud2");
}

static void must(long ret, int status)
{
	if (ret < 0 && ret > -4096)
		die(status);
}

void *memcpy(void *to, const void *from, u64 n)
{
	void *ret = to;
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return ret;
}

void *memset(void *to, int c, u64 n)
{
	void *ret = to;
	asm volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(c) : "memory");
	return ret;
}

static void map(u64 at, u64 size, int prot)
{
	must(call6(MMAP, at, size, prot, 0x32, -1, 0), 10); // private, anonymous, fixed
}

// enter loads frame; record_outcome returns to its caller.
void enter(void);
asm(".text\n"
	"enter:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	mov %rsp, saved_sp(%rip)\n"
	"	lea frame+8(%rip), %rsp\n"
	"	mov $15, %eax\n" // rt_sigreturn
	"	syscall\n"
	"	hlt\n"
	"on_signal:\n"
	"	pushq $0x202; popfq\n" // AC, NT and ID outlive a signal's delivery
	"	call record_outcome\n"
	"	test %eax, %eax\n"
	"	jnz 1f\n"
	"	ret\n"
	"1:	mov saved_sp(%rip), %rsp\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	"restorer:\n"
	"	mov $15, %eax\n"
	"	syscall\n"
	"	hlt\n"
	".globl _start\n"
	"_start:\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call begin\n");
extern char on_signal[], restorer[], etext[];

// record_segments notes the segments and puts them back.
static void record_segments(struct output *o)
{
	u16 ds, es, fs, gs;
	asm volatile("mov %%ds, %0; mov %%es, %1; mov %%fs, %2; mov %%gs, %3" : "=r"(ds), "=r"(es), "=r"(fs), "=r"(gs));
	o->seg[0] = ds, o->seg[1] = es, o->seg[2] = fs, o->seg[3] = gs;
	call3(ARCH_PRCTL, GET_FS, &o->base[0], 0);
	call3(ARCH_PRCTL, GET_GS, &o->base[1], 0);
	if (ds | es | fs | gs) // some processors clear the base with it
		asm volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%fs; mov %0, %%gs" : : "r"(0));
	else if (o->base[0] == FSBASE && o->base[1] == GSBASE)
		return;
	call3(ARCH_PRCTL, SET_FS, FSBASE, 0);
	call3(ARCH_PRCTL, SET_GS, GSBASE, 0);
}

// record_memory notes every word that is not as it was set up, and puts it back.
static void record_memory(struct output *o)
{
	u64 hash = 0, n = 0;
	for (int a = 0; a < AREAS; a++) {
		u64 *now = (u64 *)area_at[a], *was = sh->memory[a];
		for (int i = 0; i < AREA / 8; i++) {
			if (now[i] == was[i])
				continue;
			hash = (hash ^ (u64)&now[i]) * 0x9e3779b97f4a7c15ul;
			hash = ((hash ^ now[i]) * 0x9e3779b97f4a7c15ul) ^ hash >> 29;
			if (n < DIFFS)
				o->diff[n] = (struct word){(u64)&now[i], now[i]};
			n++;
			now[i] = was[i];
		}
	}
	o->hash = hash;
	o->ndiffs = n;
}

// record_xstate copies the components that are in use; the others are written as
// their initial values, which XSAVE leaves out (SDM vol. 1 §13.6).
static void record_xstate(struct output *o, const u8 *from)
{
	u64 used = *(u64 *)(from + 512);
	memset(o->xsave, 0, XSAVE);
	memcpy(o->xsave + 24, from + 24, 8); // mxcsr
	if (used & 1) {
		memcpy(o->xsave, from, 24);
		memcpy(o->xsave + 32, from + 32, 128);
	} else {
		*(u16 *)o->xsave = 0x37f;
	}
	if (used & 2)
		memcpy(o->xsave + 160, from + 160, 256);
	for (int i = 2; i < FEATURES; i++) {
		if ((sh->xfeatures & used) >> i & 1)
			memcpy(o->xsave + sh->feature[i].offset, from + sh->feature[i].offset, sh->feature[i].size);
	}
}

// record_outcome tells whether the case is over.
int record_outcome(long signo, struct siginfo *si, struct ucontext *uc)
{
	struct output *o = &sh->out[sh->current];
	u64 n = sh->taken++;
	if (uc->mc.rip >= (u64)enter && uc->mc.rip < (u64)etext) { // this program's own fault
		sh->own[0] = signo, sh->own[1] = uc->mc.rip, sh->own[2] = si->addr;
		die(20);
	}
	if (sh->taken < sh->in[sh->current].signals) {
		o->before[n].signo = signo, o->before[n].code = si->code, o->before[n].addr = si->addr;
		o->before[n].rip = uc->mc.rip, o->before[n].rflags = uc->mc.rflags;
		return 0;
	}
	o->signo = signo;
	o->code = si->code;
	o->addr = si->addr;
	memcpy(o->reg, uc->mc.reg, sizeof o->reg + 16);
	o->selectors = uc->mc.cs | (u64)uc->mc.ss << 16 | (u64)uc->mc.fs << 32 | (u64)uc->mc.gs << 48;
	o->err = uc->mc.err, o->trapno = uc->mc.trapno, o->oldmask = uc->mc.oldmask, o->cr2 = uc->mc.cr2;
	record_segments(o);
	record_memory(o);
	record_xstate(o, uc->mc.fpstate);
	memset(uc->mc.fpstate, 0x5a, XSAVE);
	return 1;
}

// on_alarm notes where the program was, if not in memory that the test knows.
void on_alarm(int signo, struct siginfo *si, struct ucontext *uc)
{
	u64 at = uc->mc.rip;
	(void)signo, (void)si;
	if ((at >= (u64)enter && at < (u64)etext) || (at >= RESERVED && at < RESERVED + RESERVED_SIZE))
		return;
	sh->alarms[sh->nalarms++ % ALARMS] = at;
}

static void run_case(struct input *in)
{
	struct sigcontext *mc = &frame.uc.mc;
	for (u64 i = 0; i < in->npatches; i++)
		*(u64 *)in->patch[i].at = in->patch[i].value;
	memcpy(mc->reg, in->reg, sizeof in->reg);
	mc->rip = in->rip;
	mc->rflags = in->rflags;
	mc->cs = 0x33;
	mc->ss = 0x2b;
	memcpy(image, in->xsave, XSAVE);
	u32 *sw = (u32 *)(image + 464); // struct _fpx_sw_bytes of asm/sigcontext.h
	sw[0] = 0x46505853;
	sw[1] = sh->xsize + 4;
	*(u64 *)&sw[2] = sh->xfeatures;
	sw[4] = sh->xsize;
	*(u32 *)(image + sh->xsize) = 0x46505845;
	enter();
}

// load takes over new code and memory; probes are placed after that.
static void load(void)
{
	must(call3(MPROTECT, CODE, CODE_SIZE, 3), 11);
	memcpy((void *)CODE, sh->code, CODE_SIZE);
	must(call3(MPROTECT, CODE, CODE_SIZE, 5), 11);
	for (int a = 0; a < AREAS; a++)
		memcpy((void *)area_at[a], sh->memory[a], AREA);
}

static void run(void)
{
	for (sh->current = 0; sh->current < CASES; sh->current++) {
		if (sh->in[sh->current].signals) {
			sh->taken = 0;
			memset(&sh->out[sh->current], 0, sizeof *sh->out);
			run_case(&sh->in[sh->current]);
		}
	}
}

// pelt runs the cases with an alarm every so many microseconds.
static void pelt(u64 us)
{
	u64 every[4] = {0, us, 0, us}, never[4] = {0}; // seconds, microseconds
	sh->nalarms = 0;
	must(call3(SETITIMER, 0, every, 0), 21);
	run();
	must(call3(SETITIMER, 0, never, 0), 21);
}

// find_features asks the processor where XSAVE puts what (SDM vol. 1 §13.2).
static void find_features(void)
{
	u32 a, b, c, d;
	asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(13), "c"(0));
	sh->xfeatures = a & 0xe7; // x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM
	sh->xsize = 576;
	for (int i = 2; i < FEATURES; i++) {
		if (!(sh->xfeatures >> i & 1))
			continue;
		asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(13), "c"(i));
		if (b + a > XSAVE - 64)
			die(12);
		sh->feature[i].offset = b;
		sh->feature[i].size = a;
		if (b + a > sh->xsize)
			sh->xsize = b + a;
	}
}

// find_pointers asks whether XSAVE keeps the addresses of the last x87 instruction
// and its operand when no exception is pending. AMD's processors may not (APM
// vol. 2 §11.4.4): then any context switch loses them.
static void find_pointers(void)
{
	memset(image, 0, sizeof image);
	*(u16 *)image = 0x37f;
	*(u64 *)(image + 8) = 0x12345678;
	*(u64 *)(image + 512) = 1;
	asm volatile("xrstor64 %0; xsave64 %0" : "+m"(image) : "a"(1), "d"(0) : "memory");
	sh->keeps_pointers = *(u64 *)(image + 8) == 0x12345678;
}

// pin stays on one processor, whose number some instructions read.
static void pin(void)
{
	u64 mask[128] = {0};
	must(call3(GETAFFINITY, 0, sizeof mask, mask), 13);
	for (int i = 0, found = 0; i < 128; i++) {
		mask[i] = found ? 0 : mask[i] & -mask[i];
		found |= mask[i] != 0;
	}
	must(call3(SETAFFINITY, 0, sizeof mask, mask), 13);
}

static void set_up(const char *path)
{
	long fd = call3(OPEN, path, 2, 0);
	must(fd, 14);
	sh = (void *)call6(MMAP, 0, sizeof *sh, 3, 1, fd, 0);
	must((long)sh, 15);
	pin();
	find_features();
	find_pointers();
	map(RESERVED, RESERVED_SIZE, 0);
	map(CODE - MARGIN, CODE_SIZE + MARGIN, 3);
	map(LAND, LAND_SIZE, 3);
	memset((void *)(CODE - MARGIN), 0xcc, CODE_SIZE + MARGIN);
	memset((void *)LAND, 0xcc, LAND_SIZE);
	must(call3(MPROTECT, CODE - MARGIN, CODE_SIZE + MARGIN, 5), 16);
	must(call3(MPROTECT, LAND, LAND_SIZE, 5), 16);
	for (int a = 0; a < AREAS; a++)
		map(area_at[a], AREA, 3);

	struct stack ss = {(u64)altstack, 0, sizeof altstack};
	must(call3(SIGALTSTACK, &ss, 0, 0), 17);
	static const int caught[] = {4, 5, 7, 8, 11, 31}; // ILL TRAP BUS FPE SEGV SYS
	for (u64 i = 0; i < sizeof caught / sizeof *caught; i++) {
		struct sigaction sa = {on_signal, 0x4c000004, restorer, 0}; // SIGINFO ONSTACK RESTORER NODEFER
		must(call6(RT_SIGACTION, caught[i], (u64)&sa, 0, 8, 0, 0), 18);
	}
	struct sigaction sa = {on_alarm, 0x1c000004, restorer, 0}; // SIGINFO ONSTACK RESTORER RESTART
	must(call6(RT_SIGACTION, 14, (u64)&sa, 0, 8, 0, 0), 18);
	frame.uc.flags = 7; // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
	frame.uc.stack = ss;
	frame.uc.mc.fpstate = image;
	must(call3(ARCH_PRCTL, SET_FS, FSBASE, 0), 19);
	must(call3(ARCH_PRCTL, SET_GS, GSBASE, 0), 19);
}

// stand_still begins anew without randomization. Else the heap, for which no memory is asked, begins anywhere in 1 GiB behind the program, and with it begins the room
// that gokprobe leaves free; so its memory would come to lie anywhere below RESERVED, where a case may point that is to find nothing there.
static void stand_still(u64 *args)
{
	enum { EXECVE = 59, PERSONALITY = 135, ADDR_NO_RANDOMIZE = 0x40000 };
	long now = call3(PERSONALITY, 0xffffffff, 0, 0);
	if (now < 0 || now & ADDR_NO_RANDOMIZE || call3(PERSONALITY, now | ADDR_NO_RANDOMIZE, 0, 0) < 0)
		return;
	must(call3(EXECVE, "/proc/self/exe", args + 1, args + 4), 20);
}

void begin(u64 *args)
{
	char line[64];
	if (args[0] != 2)
		die(2);
	stand_still(args);
	set_up((const char *)args[2]);
	call3(WRITE, 1, "ready\n", 6);
	while (call3(READ, 0, line, sizeof line) > 0) {
		if (line[0] == 'l')
			load();
		else if (line[0] == 'p')
			pelt(line[1] == 's' ? 2000 : 70); // slowly: where a stop takes longer than an alarm is away
		else
			run();
		call3(WRITE, 1, "done\n", 5);
	}
	die(0);
}

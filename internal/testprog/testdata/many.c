// 5000 functions. "call K": all of them are called K times, then "called". "start":
// N threads (argument 1, or 2) call all of them again and again; "wait K" answers
// "waited" when they have been K times around; "stop" ends them, then "calls ROUNDS".
#include "prog.h"

#define MANY 5000

// f_0 to f_4999 lie side by side: instructions of 7, 3 and 1 bytes.
__asm__(".text\n"
	".altmacro\n"
	".macro fn n\n"
	".type f_\\n, @function\n"
	"f_\\n: lea \\n+1000(%rdi), %rax\n"
	"xor %rsi, %rax\n"
	"ret\n"
	".size f_\\n, . - f_\\n\n"
	".pushsection .data.rel.ro, \"aw\"\n"
	".quad f_\\n\n"
	".popsection\n"
	".endm\n"
	".pushsection .data.rel.ro, \"aw\"\n"
	".balign 8\n"
	"many:\n"
	".popsection\n"
	".set i, 0\n"
	".rept 5000\n"
	"fn %i\n"
	".set i, i + 1\n"
	".endr\n"
	".noaltmacro\n");
extern long (*const many[])(long, long) __attribute__((visibility("hidden")));

static long stopped, rounds;

static void round_trip(long v)
{
	for (long i = 0; i < MANY; i++)
		CHECK(many[i](v, 77) == ((v + i + 1000) ^ 77));
	ADD(rounds, 1);
}

static void *worker(void *arg)
{
	for (long v = (long)arg; !GET(stopped); v++)
		round_trip(v);
	return NULL;
}

int main(int argc, char **argv)
{
	static pthread_t t[4096];
	long n = argc > 1 ? atol(argv[1]) : 2, k;
	char line[64];
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &k) == 1) {
			while (k-- > 0)
				round_trip(k);
			say("called");
		} else if (sscanf(line, "wait %ld", &k) == 1) {
			for (k += GET(rounds); GET(rounds) < k;)
				usleep(1000);
			say("waited");
		} else if (!strcmp(line, "start\n")) {
			rounds = stopped = 0;
			for (long i = 0; i < n; i++)
				t[i] = thread(worker, i);
			say("started");
		} else if (!strcmp(line, "stop\n")) {
			SET(stopped, 1);
			for (long i = 0; i < n; i++)
				pthread_join(t[i], NULL);
			say("calls %ld", rounds);
		}
	}
	return verdict();
}

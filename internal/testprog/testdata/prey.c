// The target of the kernel's own tests: "call FUNC V" prints "ret R"; "threads N M
// FUNC" calls it M times in each of N threads and prints "sum S count C"; "stack"
// prints the return addresses that the last stack_driver saw, innermost first.
#include "prog.h"

char text[] = "test";
void *stack_seen[3];

REAL long foo(long v) { return 2 * v + 1; }
REAL long target(long v) { return v / 3; }
REAL long target2(long v) { return v / 3 + 1; }
REAL long recursed_target(long v) { return v / 3; }
REAL long recurse(long v) { return v ? recurse(v - 1) + 1 : 0; }
REAL long sum6(int a, int b, int c, int d, int e, int f) { return a + b + c + d + e + f; }
REAL long six(long v) { return sum6(v, v + 1, v + 2, v + 3, v + 4, v + 5); }
REAL long length(const char *s) { return strlen(s); }
REAL long string(long v) { return length(text) + v; }
REAL long stack_internal(long v) { stack_seen[0] = __builtin_return_address(0); return v / 3; }
REAL long stack_target(long v) { stack_seen[1] = __builtin_return_address(0); return stack_internal(v) + 1; }
REAL long stack_driver(long v) { stack_seen[2] = __builtin_return_address(0); return stack_target(v) - 1; }

#define F(name) { #name, name }
struct func { const char *name; long (*f)(long); } funcs[] = {
	F(foo), F(target), F(target2), F(recursed_target), F(recurse), F(six), F(string), F(stack_driver),
};
static struct func *func;
static long calls, sum;

static void *worker(void *arg)
{
	long s = 0, n = 0;
	for (; n < (long)arg; n++)
		s += func->f(n);
	ADD(sum, s);
	ADD(calls, n);
	return NULL;
}

static int find(const char *name)
{
	for (func = funcs; func < funcs + sizeof funcs / sizeof *funcs; func++)
		if (!strcmp(func->name, name))
			return 1;
	CHECK(!"known function");
	return 0;
}

int main(void)
{
	char line[128], name[64];
	long n, m;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %63s %ld", name, &m) == 2 && find(name)) {
			say("ret %ld", func->f(m));
		} else if (sscanf(line, "threads %ld %ld %63s", &n, &m, name) == 3 && find(name) && n <= 4096) {
			static pthread_t t[4096];
			calls = sum = 0;
			for (long i = 0; i < n; i++)
				t[i] = thread(worker, m);
			for (long i = 0; i < n; i++)
				pthread_join(t[i], NULL);
			say("sum %ld count %ld", sum, calls);
		} else if (!strcmp(line, "stack\n")) {
			say("stack %p %p %p", stack_seen[0], stack_seen[1], stack_seen[2]);
		} else {
			CHECK(!"known command");
		}
	}
	return verdict();
}

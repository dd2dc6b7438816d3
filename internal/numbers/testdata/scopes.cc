#include <cstdio>
int cnt = 1, size = 1, calls = 1, level = 1000;
namespace one { int cnt = 2; __attribute__((noinline)) int user(int n) { asm volatile("" ::"r"(&cnt) : "memory"); return n + cnt; } }
namespace two {
struct C { static int cnt; int size = 77; int meth(int n); };
int C::cnt = 5;
__attribute__((noinline)) int C::meth(int n) { asm volatile("" ::"r"(&cnt) : "memory"); return n + cnt + size; }
}
namespace { namespace deep { int cnt = 6; __attribute__((noinline)) int inner(int n) { asm volatile("" ::"r"(&cnt) : "memory"); return n + cnt; } } }
static inline __attribute__((always_inline)) int inlined(int level) { asm volatile("" ::"r"(&::level) : "memory"); return level * 3; }
__attribute__((noinline)) int user(int n)
{
	static int calls = 500;
	asm volatile("" ::"r"(&calls), "r"(&::calls), "r"(&::size), "r"(&::cnt) : "memory");
	return n + inlined(n + 1);
}
int main()
{
	two::C c;
	puts("ready");
	fflush(stdout);
	for (int ch; (ch = getchar()) >= 0;)
		if (ch == '\n') {
			one::user(2), c.meth(2), deep::inner(2), user(2);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

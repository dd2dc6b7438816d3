// Functions with a cold part of their own.
#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((noinline, cold)) void fail(int n) { fprintf(stderr, "%d\n", n); abort(); }

namespace ns {
__attribute__((noinline)) int checked(int n)
{
	if (n < 0) {
		fail(n);
		fail(n + 1);
	}
	return n * 3;
}
} // namespace ns

extern "C" __attribute__((noinline, used)) int warm(int n) __asm__("_ZN2ns7checkedEi.warm"); // BOLT makes such parts
int warm(int n) { return n - 3; }

extern "C" __attribute__((noinline)) int plain(int n)
{
	if (n == 77) {
		fail(n);
		fail(n - 1);
	}
	return n + 1;
}

int main(int argc, char **) { return ns::checked(argc) + plain(argc) == 0; }

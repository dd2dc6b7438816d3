// C++ names and exceptions: "call V" calls a method, two overloads, a template, a
// virtual method, and a function that throws through others; "ret R" is their sum.
// "threads N M": N threads that do so M times each; "sum S count C".
#include "prog.h"
#include <stdexcept>
#include <string>

namespace shop {

class Counter {
public:
	REAL virtual long add(long v) const { return v + 1; }
	REAL virtual long add(double v) const { return (long)(v * 2); }
	virtual ~Counter() {}
};

class Doubler : public Counter {
public:
	REAL long add(long v) const override { return 2 * v; }
	using Counter::add;
};

template <typename T> REAL T largest(T a, T b) { return a > b ? a : b; }

REAL long thrower(long v)
{
	if (v % 2)
		throw std::out_of_range(std::to_string(v));
	return v;
}

struct Scope {
	long &left;
	REAL ~Scope() { left++; }
};

REAL long between(long v, long &left)
{
	Scope scope{left};
	return thrower(v) + 1;
}

REAL long catcher(long v)
{
	long left = 0, r;
	try {
		r = between(v, left);
	} catch (const std::out_of_range &e) {
		r = std::stol(e.what()) + 2;
	}
	CHECK(left == 1);
	return r;
}

REAL long all(const Counter &a, const Counter &b, long v)
{
	return a.add(v) + b.add(v) + a.add(v / 2.0) + largest(v, 10L) + largest(v * 1.0, 2.0) + catcher(v);
}

} // namespace shop

static long calls, sum;

static long expected(long v)
{
	return v + 1 + 2 * v + v + (v > 10 ? v : 10) + (v > 2 ? v : 2) + (v % 2 ? v + 2 : v + 1);
}

static void *worker(void *arg)
{
	shop::Counter a;
	shop::Doubler b;
	for (long n = 0; n < (long)arg; n++) {
		long r = shop::all(a, b, n);
		CHECK(r == expected(n));
		ADD(sum, r);
		ADD(calls, 1);
	}
	return NULL;
}

int main()
{
	char line[64];
	long n, m;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &n) == 1) {
			long r = shop::all(shop::Counter(), shop::Doubler(), n);
			CHECK(r == expected(n));
			say("ret %ld", r);
		} else if (sscanf(line, "threads %ld %ld", &n, &m) == 2 && n <= 256) {
			pthread_t t[256];
			calls = sum = 0;
			for (long i = 0; i < n; i++)
				t[i] = thread(worker, m);
			for (long i = 0; i < n; i++)
				pthread_join(t[i], NULL);
			say("sum %ld count %ld", sum, calls);
		}
	}
	return verdict();
}

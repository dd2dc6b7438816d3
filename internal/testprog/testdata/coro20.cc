// C++ coroutines: to be built with -std=c++20. A generator, one that throws, one that is
// destroyed half way, and one that is resumed by another thread each time.
#include "rounds.h"
#include <coroutine>
#include <exception>
#include <thread>

struct Numbers {
	struct promise_type {
		long value = 0;
		std::exception_ptr thrown;
		Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
		std::suspend_always initial_suspend() { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(long v) { value = v; return {}; }
		void return_void() {}
		void unhandled_exception() { thrown = std::current_exception(); }
	};
	std::coroutine_handle<promise_type> at;
};

static long gone;
struct Scope {
	~Scope() { gone++; }
};
extern "C" long cr_check(long v);
Numbers cr_numbers(long from, long to)
{
	Scope scope;
	for (; from < to; from++)
		co_yield cr_check(from);
}

extern "C" {

REAL long cr_next(Numbers *n)
{
	n->at.resume();
	if (n->at.promise().thrown)
		std::rethrow_exception(n->at.promise().thrown);
	return n->at.done() ? -1 : n->at.promise().value;
}
REAL long cr_check(long v) { if (v == 7) throw v; return v; }
REAL long cr_sum(long from, long to)
{
	Numbers n = cr_numbers(from, to);
	long sum = 0, v;
	try {
		while ((v = cr_next(&n)) >= 0)
			sum += v;
	} catch (long e) {
		sum = -e;
	}
	n.at.destroy();
	return sum;
}
static long generator_round(long i)
{
	gone = 0;
	long r = cr_sum(1, 6), thrown = cr_sum(5, 9);
	Numbers half = cr_numbers(1, 5);
	CHECK(cr_next(&half) == 1);
	half.at.destroy();
	CHECK(r == 15 && thrown == -7 && gone == 3);
	return r + i;
}

REAL void ct_step(Numbers *n, long *v) { *v = cr_next(n); }
static long threads_round(long i)
{
	Numbers n = cr_numbers(1, 6);
	long sum = 0, v = 0;
	for (; v >= 0; sum += v)
		std::thread(ct_step, &n, &v).join();
	n.at.destroy();
	CHECK(sum == 14);
	return sum + i;
}
}

int main()
{
	static const struct round list[] = {{"generator", generator_round}, {"threads", threads_round}, {NULL, NULL}};
	return serve(list);
}

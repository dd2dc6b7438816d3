// C++ exceptions through functions that are followed; the path of throwlib.cc's library
// is the argument. A case's functions begin with its letters.
#include "rounds.h"
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unwind.h>
#include <vector>

extern "C" {

// Caught two frames above.
REAL long ab_inner(long v) { if (v % 2) throw v; return v; }
REAL long ab_mid(long v) { return ab_inner(v) + 1; }
REAL long ab_outer(long v)
{
	try {
		return ab_mid(v) + 1;
	} catch (long e) {
		return -e;
	}
}
static long above_round(long i)
{
	long r = ab_outer(2 * i) + ab_outer(2 * i + 1);
	CHECK(r == 1);
	return r + i;
}

// Rethrown by every frame of a recursion, caught by the last as another type.
REAL long rt_down(long n)
{
	try {
		if (n == 0)
			throw std::out_of_range("deep");
		return rt_down(n - 1);
	} catch (const std::logic_error &e) {
		if (n == 5)
			throw std::string(e.what()) + "er";
		throw;
	}
}
REAL long rt_outer(long v)
{
	try {
		return rt_down(5);
	} catch (const std::string &s) {
		CHECK(s == "deeper");
		return v + s.size();
	}
}
static long rethrow_round(long i)
{
	long r = rt_outer(i);
	CHECK(r == i + 6);
	return r;
}

// Frames with many destructors, which throw and catch for themselves while they unwind.
static long de_gone;
REAL void de_throw(void) { throw 1; }
REAL void de_drop(long n) { try { de_throw(); } catch (int) { de_gone += n; } }
struct Scoped {
	long n;
	~Scoped() { de_drop(n); CHECK(std::uncaught_exceptions() <= 1); }
};
REAL long de_mid(long v)
{
	Scoped a{1}, b{2}, c{3};
	std::vector<std::unique_ptr<Scoped>> more;
	for (long n = 4; n < 8; n++)
		more.push_back(std::unique_ptr<Scoped>(new Scoped{n}));
	if (v)
		throw std::string("out");
	return v;
}
REAL long de_outer(long v)
{
	try {
		return de_mid(v);
	} catch (const std::string &) {
		return v;
	}
}
static long destructor_round(long i)
{
	de_gone = 0;
	long r = de_outer(i + 1);
	CHECK(r == i + 1 && de_gone == 28);
	return r;
}

// Thrown in a thread, carried to another, thrown there again.
REAL void ep_inner(long v) { throw std::runtime_error(std::to_string(v)); }
REAL void ep_thread(long v, std::exception_ptr *out)
{
	try {
		ep_inner(v);
	} catch (...) {
		*out = std::current_exception();
	}
}
REAL void ep_again(std::exception_ptr *e) { std::rethrow_exception(*e); }
REAL long ep_outer(long v)
{
	std::exception_ptr e;
	std::thread(ep_thread, v, &e).join();
	try {
		ep_again(&e);
	} catch (const std::runtime_error &r) {
		return std::stol(r.what());
	}
	return -1;
}
static long pointer_round(long i)
{
	long r = ep_outer(i);
	CHECK(r == i);
	return r;
}

// From eight threads at once.
REAL long th_inner(long v) { throw v; }
REAL long th_mid(long v) { std::string s(40, 'x'); return th_inner(v) + s.size(); }
REAL long th_outer(long v)
{
	try {
		return th_mid(v);
	} catch (long e) {
		return e + 1;
	}
}
static long threads_round(long i)
{
	std::vector<std::thread> all;
	long sum = 0;
	for (long t = 0; t < 8; t++)
		all.emplace_back([t, &sum] { for (long n = 0; n < 10; n++) ADD(sum, th_outer(t * n)); });
	for (auto &t : all)
		t.join();
	CHECK(sum == 45 * 28 + 80);
	return sum + i;
}

// Through a function of a library.
static long (*li_through)(long (*)(long), long), (*li_throws)(long);
REAL long li_callback(long v) { if (v % 2) throw v; return v; }
REAL long li_outer(long v)
{
	long sum = 0;
	for (long n = v; n < v + 2; n++) {
		try {
			sum += li_through(li_callback, n);
		} catch (long e) {
			sum += 10 * e;
		}
		try {
			sum += li_throws(n);
		} catch (const std::logic_error &e) {
			sum += std::stol(e.what());
		}
	}
	return sum;
}
static long library_round(long i)
{
	long r = li_outer(2 * i);
	CHECK(r == (2 * i + 1) + 10 * (2 * i + 1) + 2 * i + 2 * i + 1);
	return r;
}

// A thread is cancelled and one exits, with destructors on the way.
static long fo_gone;
struct Gone {
	~Gone() { ADD(fo_gone, 1); }
};
REAL void fo_inner(long v) { Gone g; if (v) pthread_exit((void *)v); pthread_cancel(pthread_self()); pthread_testcancel(); }
REAL void *fo_outer(void *v)
{
	Gone g;
	try {
		fo_inner((long)v);
	} catch (const std::exception &) {
		ADD(wrong, 1);
	} catch (...) {
		ADD(fo_gone, 1);
		throw; // a forced unwind must go on
	}
	return NULL;
}
static long forced_round(long i)
{
	void *v;
	SET(fo_gone, 0);
	pthread_join(thread(fo_outer, 0), &v);
	CHECK(v == PTHREAD_CANCELED);
	pthread_join(thread(fo_outer, i + 1), &v);
	CHECK((long)v == i + 1 && GET(fo_gone) == 6);
	return (long)v;
}

// An exception that nobody catches.
REAL void te_inner(void) { throw 3; }
REAL void te_outer(void) { te_inner(); }
static long uncaught_round(long i)
{
	std::set_terminate([] { say("terminate"); _exit(6); });
	te_outer();
	return i;
}
}

int main(int argc, char **argv)
{
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (lib) {
		li_through = (long (*)(long (*)(long), long))dlsym(lib, "tl_through");
		li_throws = (long (*)(long))dlsym(lib, "tl_throws");
	}
	static const struct round list[] = {
		{ "above", above_round },
		{ "rethrow", rethrow_round },
		{ "destructor", destructor_round },
		{ "pointer", pointer_round },
		{ "threads", threads_round },
		{ "library", library_round },
		{ "forced", forced_round },
		{ "uncaught", uncaught_round },
		{ NULL, NULL },
	};
	return serve(list);
}

// What C++ functions return, and how they are left: as cvalues.c, and "throw N" calls a
// function that throws at each even call, N times, and prints "ret R", the number of
// calls that returned.
#include "prog.h"
#include <stdexcept>
#include <string>
#include <string_view>

namespace values {

struct Base { int id; };
struct Derived : Base { int extra; };
struct Copied { long v; explicit Copied(long v) : v(v) {} Copied(const Copied &o) : v(o.v) {} };
enum class Level { Low, High };

struct Counter {
	long n;
	REAL Counter &add(long v) { n += v; return *this; }
};
REAL Derived derived(int v) { Derived d; d.id = v, d.extra = v + 1; return d; }
REAL Copied copied(long v) { return Copied(v); }
REAL Level level(long v) { return v % 2 ? Level::High : Level::Low; }
REAL std::string_view view(std::string_view s, long v) { return s.substr(v % 4); }
REAL std::string string(long v) { return std::string(v * 7, 'x'); }
REAL const long &reference(const long &v) { return v; }
template <typename T> REAL T largest(T a, T b) { return a > b ? a : b; }
REAL long thrower(long v)
{
	if (v % 2 == 0)
		throw std::out_of_range("even");
	return v;
}

} // namespace values

static long call(long v)
{
	using namespace values;
	Counter c{1};
	say("values::Counter::add {n: %ld}", c.add(v).n);
	Derived d = derived(v);
	say("values::derived {Base: {id: %d}, extra: %d}", d.id, d.extra);
	say("values::copied {v: %ld}", copied(v).v);
	say("values::level %s", level(v) == Level::High ? "High" : "Low");
	std::string s(view("results", v));
	say("values::view \"%s\"", s.c_str());
	say("values::string[abi:cxx11] \"%s\"", values::string(v).c_str());
	say("values::reference %ld", reference(v));
	say("values::largest<double> %g", largest(v + 0.5, 1.0));
	return v;
}

static long throwing(long n)
{
	long returned = 0;
	for (long i = 0; i < n; i++) {
		try {
			CHECK(values::thrower(i) == i);
			returned++;
		} catch (const std::out_of_range &) {
		}
	}
	return returned;
}

int main()
{
	char line[64];
	long v;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %ld", &v) == 1)
			say("ret %ld", call(v));
		else if (sscanf(line, "throw %ld", &v) == 1)
			say("ret %ld", throwing(v));
		else
			CHECK(!"known command");
	}
	return verdict();
}

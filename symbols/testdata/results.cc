// What C++ adds: references, classes that are returned by reference, names.
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#define F __attribute__((noinline, noclone))
volatile int sink;

struct Base { int id; };
struct Derived : Base { int extra; };
struct Destroyed { int v; ~Destroyed() { sink = sink + 1; } };
struct Copied { int v; explicit Copied(int v) : v(v) {} Copied(const Copied &o) : v(o.v) {} };
struct Moved { int v; explicit Moved(int v) : v(v) {} Moved(Moved &&o) : v(o.v) { o.v = 0; } };
struct Virtual { int v; explicit Virtual(int v) : v(v) {} virtual int get() { return v; } };
struct Holder { Copied c; int n; };
struct Empty {};
enum class Level : unsigned char { Low, High = 7 };

namespace ns {
struct Counter {
	int n;
	F Counter(int n) : n(n) { sink = sink + 1; }
	F Counter &add(int by) { n += by; return *this; }
	F int operator()(int v) const { return n * v; }
};
F const int &reference(const int &a) { sink = sink + 1; return a; }
F Derived derived() { Derived d; d.id = 3, d.extra = 4; return d; }
F Destroyed destroyed(int v) { return Destroyed{v}; }
F Copied copied(int v) { return Copied(v); }
F Moved moved(int v) { return Moved(v); }
F Virtual with_vptr(int v) { return Virtual(v); }
F Holder holder(int v) { return Holder{Copied(v), 9}; }
F Empty empty() { sink = sink + 1; return {}; }
F Level level() { return Level::High; }
F std::string string(int n) { return std::string(n, 'x') + "y"; }
F std::string_view view() { return "view"; }
F std::pair<int, double> pair() { return {1, 2.5}; }
F std::optional<long> maybe(long v) { if (v) return v; return {}; }
template <typename T> F T largest(T a, T b) { return a > b ? a : b; }
} // namespace ns

int main()
{
	static int seven = 7;
	ns::Counter c{1};
	sink = sink + c.add(5).n + c(2) + ns::reference(seven) + ns::derived().id + ns::destroyed(5).v + ns::copied(6).v;
	sink = sink + ns::moved(7).v + ns::with_vptr(8).get() + ns::holder(8).n;
	ns::empty();
	sink = sink + (int)ns::level() + (int)ns::string(40).size() + (int)ns::view().size() + ns::pair().first;
	sink = sink + (int)ns::maybe(11).has_value() + (int)ns::largest(2.5, 1.5);
	return 0;
}

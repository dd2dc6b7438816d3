// What C++ adds: references, this, classes passed by reference, bases.
#include <string>
#include <string_view>

#define F __attribute__((noinline, noclone))
volatile int sink;

struct Base { int id; };
struct Derived : Base { int extra; };
struct Owner { int v; Owner(int v) : v(v) {} Owner(const Owner &o) : v(o.v) {} ~Owner() { sink = sink + 1; } };
struct Node { const Node *next; int v; };
F void cyclic(const Node &n, const Node *p, Node by) { sink = sink + n.v + p->v + by.v; }

namespace ns {
struct Counter {
	int n;
	F void add(int by, const std::string &why) { n += by + (int)why.size(); }
};
F void refs(const int &r, Derived d, Owner o, int last) { sink = sink + r + d.id + o.v + last; }
F void strings(std::string s, std::string_view v, const std::string *p) { sink = sink + (int)(s.size() + v.size() + p->size()); }
} // namespace ns

int main()
{
	ns::Counter c{1};
	Node last{nullptr, 2}, first{&last, 1};
	cyclic(first, &last, last);
	std::string why = "a reason that is longer than the local buffer";
	c.add(5, why);
	Derived d;
	d.id = 3, d.extra = 4;
	ns::refs(42, d, Owner(6), 7);
	ns::strings("short", "view", &why);
	return 0;
}

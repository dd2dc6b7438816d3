// Functions that share names in every way C++ allows.
#include <cstdio>
#include <string>
#include <vector>

namespace ns {
template <class T> struct Box {
	T value;
	__attribute__((noinline)) T take(T other) { return value + other; }
};
__attribute__((noinline)) int over(int x) { return x + 1; }
__attribute__((noinline)) int over(double x) { return (int)x; }
__attribute__((noinline)) int single(const std::string &s, std::vector<int> v) { return (int)(s.size() + v.size()); }
struct Ops {
	int v;
	__attribute__((noinline)) Ops operator+(const Ops &o) const { return Ops{v + o.v}; }
	__attribute__((noinline)) Ops operator*(int n) const { return Ops{v * n}; }
	__attribute__((noinline)) int operator[](int n) const { return v + n; }
};
} // namespace ns

int main(int argc, char **)
{
	ns::Box<int> b{argc};
	ns::Ops o{argc};
	printf("ready %d\n", b.take(1) + ns::over(argc) + ns::over(2.5) + ns::single("x", {1, 2}) + (o + o).v + (o * 2).v + o[1]);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

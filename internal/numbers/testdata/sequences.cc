#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>
struct base { int kind; };
enum color { RED, GREEN, BLUE };
struct item : base { std::string name; double price; color c; unsigned bits : 3; int more : 5; };
struct order { long id; std::vector<item> items; std::vector<item> none; std::vector<short> numbers; std::string note; item own[2]; order *next; const item &ref; int grid[2][3]; };
static std::vector<int> global = { 7, 8 };
extern "C" __attribute__((noinline)) long handle(order &o, const order *p, std::string_view v, int n)
{
	static std::vector<int> &kept = global;
	long k = o.id * 2;
	asm volatile("" ::"r"(&o), "r"(p), "r"(k) : "memory");
	return k + v.size() + n + kept.size();
}
int main()
{
	item it;
	it.kind = 3, it.name = "ref", it.price = 2.5, it.c = BLUE, it.bits = 5, it.more = -3;
	item other = it;
	other.name = "a name that is too long for the buffer", other.kind = -4;
	order o{ 17, { it, other }, {}, { 1, -2, 3, 4, 5, 6, 7, 8, 9, 10 }, "note", { other, it }, nullptr, it, { { 1, 2, 3 }, { 4, 5, 6 } } };
	o.next = &o;
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			handle(o, &o, "view", 42);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

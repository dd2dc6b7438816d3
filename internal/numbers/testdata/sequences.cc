#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>
struct base { int kind; };
enum color { RED, GREEN, BLUE };
struct item : base { std::string name; double price; color c; unsigned bits : 3; int more : 5; };
struct order { long id; std::vector<item> items; std::vector<item> none; std::vector<short> numbers; std::string note; item own[2]; order *next; const item &ref; int grid[2][3]; };
struct bits { int a; unsigned b : 3; int c : 7; };
struct flex { int n; char text[]; };
static flex *flexible;
static std::vector<int> global = { 7, 8 };
extern "C" __attribute__((noinline)) long handle(order &o, const order *p, std::string_view v, int n, bits b, int &r, color &c, const char *bad, flex *f, order *&indirect)
{
	static std::vector<int> &kept = global;
	long k = o.id * 2;
	asm volatile("" ::"r"(&o), "r"(p), "r"(k) : "memory");
	return k + v.size() + n + kept.size() + b.a + r + c + (bad != nullptr) + f->n + indirect->id;
}
int main()
{
	item it;
	it.kind = 3, it.name = "ref", it.price = 2.5, it.c = BLUE, it.bits = 5, it.more = -3;
	item other = it;
	other.name = "a name that is too long for the buffer", other.kind = -4;
	order o{ 17, { it, other }, {}, { 1, -2, 3, 4, 5, 6, 7, 8, 9, 10 }, "note", { other, it }, nullptr, it, { { 1, 2, 3 }, { 4, 5, 6 } } };
	o.next = &o;
	flexible = (flex *)calloc(1, 64);
	flexible->n = 8;
	strcpy(flexible->text, "flexible");
	order *self = &o;
	int seventy = 77;
	color green = GREEN;
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			handle(o, &o, "view", 42, bits{ 5, 3, -2 }, seventy, green, (const char *)-1, flexible, self);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

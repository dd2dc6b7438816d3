#include <array>
#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdio>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>
using namespace std::chrono_literals;
enum flags { READ = 1, WRITE = 2, RUN = 4 };
struct node { int id; std::shared_ptr<node> next; std::weak_ptr<node> prev; };
static int twice(int n) { return 2 * n; }
namespace mine { template <class T> struct unique_ptr { unsigned id, gen; }; }
struct __attribute__((packed)) packed { int x, y; };
struct all {
	std::map<std::string, int> ages, empty, many;
	std::map<char, double> small;
	std::multimap<int, std::string> several;
	std::set<short> shorts;
	std::multiset<long> longs;
	std::unordered_map<int, std::string> names;
	std::unordered_map<std::string, std::vector<int>> rows;
	std::unordered_set<char> chars;
	std::deque<int> deque;
	std::deque<std::array<char, 100>> wide;
	std::deque<int> nothing;
	std::list<std::string> list;
	std::forward_list<int> chain, chain0;
	std::unique_ptr<int> owned, none;
	std::unique_ptr<node> object;
	std::shared_ptr<node> shared;
	std::weak_ptr<int> weak, gone;
	std::optional<int> seven, nullopt;
	std::optional<std::string> text;
	std::variant<int, std::string, double> alternative, number;
	std::tuple<int, std::string, char> tuple;
	std::pair<int, std::string> pair;
	std::function<int(int)> nofunction, called, lambda;
	int (*function)(int);
	std::chrono::milliseconds ms;
	std::chrono::hours hours;
	std::chrono::duration<double> seconds;
	std::atomic<int> atomic;
	std::atomic<bool> flag;
	std::bitset<10> bits;
	std::array<int, 3> array;
	std::reference_wrapper<int> wrapper;
	flags rw, other;
	std::map<int, std::map<int, int>> nested;
	std::vector<bool> bools, nobools;
	mine::unique_ptr<int> handle;
	std::map<char, packed> packs;
	std::unordered_map<short, packed> hashed;
};
extern "C" __attribute__((noinline)) long handle(all &a, const std::map<int, int> &m, std::unique_ptr<int> p, int n)
{
	asm volatile("" ::"r"(&a), "r"(&m) : "memory");
	return a.ages.size() + m.size() + *p + n;
}
int main()
{
	int forty = 40;
	auto kept = std::make_shared<int>(9);
	static all a{
		.ages = { { "carl", 3 }, { "anna", 1 }, { "bert", 2 } }, .empty = {}, .many = {}, .small = { { 'x', 2.5 }, { 'a', -1 } }, .several = { { 1, "one" }, { 1, "uno" } },
		.shorts = { 3, -1, 2 }, .longs = { 5, 5 }, .names = { { 2, "two" }, { 1, "one" } }, .rows = { { "r", { 1, 2 } } }, .chars = { 'c' }, .deque = {}, .wide = {}, .nothing = {},
		.list = { "first", "second" }, .chain = { 1, 2, 3 }, .chain0 = {}, .owned = std::make_unique<int>(5), .none = nullptr, .object = std::make_unique<node>(node{ 6, nullptr, {} }),
		.shared = std::make_shared<node>(node{ 7, std::make_shared<node>(node{ 8, nullptr, {} }), {} }), .weak = kept, .gone = std::make_shared<int>(1), .seven = 7, .nullopt = {}, .text = "text",
		.alternative = "second", .number = 2.5, .tuple = { 1, "tuple", 'c' }, .pair = { 1, "pair" }, .nofunction = nullptr, .called = twice, .lambda = [forty](int x) { return x + forty; }, .function = twice, .ms = 5ms, .hours = 3h, .seconds = std::chrono::duration<double>(1.5),
		.atomic = 11, .flag = true, .bits = 0b1000000101, .array = { 1, 2, 3 }, .wrapper = forty, .rw = flags(READ | WRITE), .other = flags(9), .nested = { { 1, { { 2, 3 } } } }, .bools = { true, false, true, true, false, false, false, true, true, true }, .nobools = {}, .handle = { 5, 6 }, .packs = { { 'k', { 1, 2 } } }, .hashed = { { 3, { 4, 5 } } },
	};
	a.object->next = a.shared;
	for (int i = 0; i < 300; i++)
		a.many["key" + std::to_string(1000 + i)] = i, a.deque.push_back(i), a.deque.push_front(-i);
	for (int i = 0; i < 300; i++)
		if (i > 4)
			a.deque.pop_front();
	a.wide.resize(9);
	std::map<int, int> m{ { 1, 10 }, { 2, 20 } };
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			handle(a, m, std::make_unique<int>(12), 42);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

// A program as people write them: classes, references, templates, lambdas.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))

volatile long sink;
NOINLINE void keep(const void *p) { sink += *static_cast<const unsigned char *>(p); }

namespace shapes {

enum class Kind : uint8_t { Point, Box = 7, Disc };
enum Flags { Plain = 0, Filled = 1, Dashed = 2, Bold = 4 };

struct Point {
	int x, y;
	Point operator+(const Point &o) const { return { x + o.x, y + o.y }; }
	int64_t dot(const Point &o) const { return int64_t(x) * o.x + int64_t(y) * o.y; }
};

class Shape {
public:
	Shape(Kind k, Point at) : kind(k), at(at) { ++made; }
	virtual ~Shape() = default;
	virtual double area() const { return 0; }
	Kind kind;
	Point at;
	static int made;
	unsigned flags : 3, layer : 5;
	int depth : 7;
};
int Shape::made;

struct Named {
	const char *name;
	long id;
};

class Box : public Shape, public Named {
public:
	Box(Point at, double w, double h, const char *n) : Shape(Kind::Box, at), Named{ n, made * 3L }, w(w), h(h) { flags = Filled | Bold; layer = 9; depth = -5; }
	double area() const override;
	double w;
	float h;
	union {
		uint32_t color;
		uint8_t part[4];
	};
	int16_t edge[4] = { 1, -2, 3, -4 };
};

NOINLINE double Box::area() const
{
	double a = w * h;
	for (int16_t e : edge)
		a += e * 0.5;
	color == 3 ? a += 1 : a -= 1;
	return a;
}

template <typename T, int N> struct Ring {
	T item[N];
	unsigned next = 0;
	T &push(const T &v)
	{
		T &slot = item[next++ % N];
		slot = v;
		return slot;
	}
	template <typename F> NOINLINE long each(F f, long start) const
	{
		long sum = start;
		for (unsigned i = 0; i < next && i < N; i++) {
			const T &one = item[i];
			sum += f(one, i);
		}
		return sum;
	}
};

} // namespace shapes

using namespace shapes;

template <typename T> static inline T clamp_to(T v, const T &low, const T &high)
{
	T out = v < low ? low : v;
	if (out > high)
		out = high;
	return out;
}

NOINLINE static long measure(const Shape &shape, const Box *box, Kind kind, Flags flags, bool deep)
{
	double area = shape.area();
	long total = static_cast<long>(area * 10);
	Point corner = shape.at + Point{ int(kind), int(flags) };
	const int &x = corner.x;
	total += clamp_to(x, -3, 40);
	if (deep && box) {
		const Named &named = *box;
		long id = named.id;
		total += id + corner.dot(box->at);
		keep(&id);
	}
	keep(&corner);
	return total;
}

NOINLINE static long table(std::vector<Point> &points, std::map<int, std::string> &names, int &count)
{
	long sum = 0;
	std::sort(points.begin(), points.end(), [](const Point &a, const Point &b) { return a.x < b.x; });
	for (const Point &p : points) {
		int twice = 2 * p.x;
		sum += twice - p.y;
		count++;
	}
	for (auto &[key, value] : names) {
		size_t length = value.size();
		sum += key * long(length);
	}
	return sum;
}

NOINLINE static int64_t closures(int n, short step, float scale)
{
	int64_t outer = n;
	Ring<int64_t, 4> ring;
	for (int i = 0; i < n; i++) {
		int64_t &slot = ring.push(outer * i);
		slot += step;
	}
	auto f = [&outer, step, scale](int64_t v, unsigned i) {
		outer += v % 5;
		float scaled = scale * i;
		return v + step + long(scaled);
	};
	long sum = ring.each(f, 11);
	std::function<long(long)> g = [sum](long k) { return sum + k; };
	return outer + g(3);
}

NOINLINE static uint64_t moved(std::unique_ptr<Box> &&from, std::array<unsigned char, 5> bytes, signed char tiny, char letter)
{
	std::unique_ptr<Box> mine = std::move(from);
	Box *raw = mine.get();
	uint64_t hash = 1469598103934665603ull;
	for (unsigned char b : bytes)
		hash = (hash ^ b) * 1099511628211ull;
	void *anything = raw;
	long double precise = raw->area();
	keep(anything);
	return hash + uint64_t(precise) + tiny + letter;
}

int main()
{
	for (int k = 0; k < 3; k++) {
		auto box = std::make_unique<Box>(Point{ k + 1, 2 - k }, 1.5 + k, 2.25f, k ? "second" : "first");
		box->color = 3 + k;
		Shape plain(Kind::Disc, { 4, 5 });
		plain.flags = 1, plain.layer = 2, plain.depth = 3;
		sink += measure(*box, box.get(), box->kind, Flags(Filled | Dashed), true) + measure(plain, nullptr, Kind::Point, Bold, k == 1);
		std::vector<Point> points{ { 5, k }, { 3, -k }, { 9, 1 } };
		std::map<int, std::string> names{ { 1, "one" }, { k + 7, "a longer name than fits into the object" } };
		int count = k;
		sink += table(points, names, count) + count;
		sink += closures(k + 3, -4, 1.25f);
		sink += moved(std::move(box), { 1, 2, 3, 4, (unsigned char)k }, -3, 'q');
	}
	return 0;
}

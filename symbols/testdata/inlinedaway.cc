// Functions of which every call is inlined, and which have no code of their own.
namespace deep {
template <typename T> struct box {
	T held;
	explicit box(T v) : held(v) {}
	__attribute__((always_inline)) inline T doubled(int by) const
	{
		volatile T sum = held;
		sum = sum + by;
		return sum + held;
	}
};
__attribute__((always_inline)) static inline int stretch(int x)
{
	volatile int y = x;
	y = y * 3;
	return y;
}
}

static int outer(int x) __attribute__((always_inline));
static inline int outer(int x)
{
	return deep::stretch(x);
}

extern "C" __attribute__((noinline)) int first(int x) { return deep::stretch(x) + outer(x); }
extern "C" __attribute__((noinline)) int second(int x) { return deep::box<int>(x).doubled(x) + deep::box<long>(x).doubled(2); }

int main(int argc, char **)
{
	return first(argc) + second(argc) > 1000;
}

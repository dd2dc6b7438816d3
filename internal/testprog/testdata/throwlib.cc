// A library for throws, with -shared -fPIC.
#include <stdexcept>
#include <string>

extern "C" __attribute__((noinline)) long tl_through(long (*f)(long), long v)
{
	std::string scope(50, 'x');
	return f(v) + (scope.size() == 50);
}

extern "C" __attribute__((noinline)) long tl_throws(long v) { throw std::logic_error(std::to_string(v)); }

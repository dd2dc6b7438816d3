#include <cstdio>
#include <string>
#include <vector>
namespace app {
struct shop { static int total; static thread_local long mine; std::string name = "corner"; };
int shop::total = 5;
thread_local long shop::mine = 77;
namespace inner { std::vector<int> v = { 1, 2, 3 }; static int counter = 11; extern const int limit = 42; }
namespace other { static int counter = 12; }
namespace { int hidden = 3; }
shop s;
const shop &same = s;
__attribute__((noinline)) int handle(int total)
{
	asm volatile("" ::"r"(&inner::counter), "r"(&other::counter), "r"(&hidden), "r"(&inner::limit), "r"(&same) : "memory");
	return total + shop::total + inner::v[1] + shop::mine + s.name.size();
}
}
std::string text = "a text that is too long for the buffer";
int main()
{
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			app::handle(2);
			puts("done");
			fflush(stdout);
		}
	return 0;
}

// Exits with twice its argument, by a function whose parameters are not those of spawner's, which has that name too. With
// a second argument a child of it does that. With EARLY the function is called before main as well.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noipa)) short foo(const char *name, short v, double half) { return name[0] == 'n' && half == v / 2.0 ? 2 * v : 1; }

#ifdef EARLY
__attribute__((constructor)) static void early(void) { foo("name", 0, 0); }
#endif

int main(int argc, char **argv)
{
	short v = argc > 1 ? atoi(argv[1]) : 0;
	int status;
	if (argc > 2 && fork())
		return wait(&status) > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	return foo("name", v, v / 2.0);
}

#ifdef ALIAS // another name of foo
#define TEXT(x) #x
#define NAME(x) TEXT(x)
extern __typeof(foo) ALIAS __attribute__((alias(NAME(foo))));
#endif

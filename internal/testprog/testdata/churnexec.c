// Threads that make threads without pause, and one that executes the program anew meanwhile, as often as argument 1 says. Then it says
// "right".
#include "prog.h"

static char **args;

static void *nothing(void *arg) { return NULL; }

static void *maker(void *arg)
{
	pthread_attr_t a;
	pthread_t t;
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, 1 << 16);
	for (;;)
		pthread_create(&t, &a, nothing, NULL);
}

static void *executer(void *arg)
{
	char left[16];
	usleep(2000);
	snprintf(left, sizeof left, "%ld", (long)arg - 1);
	execl("/proc/self/exe", args[0], left, "again", NULL);
	_exit(97);
}

int main(int argc, char **argv)
{
	char line[16];
	long left = atol(argv[1]);
	args = argv;
	if (argc == 2) {
		say("ready");
		hear(line, sizeof line);
	}
	if (left == 0)
		return verdict();
	thread(maker, 0);
	thread(maker, 0);
	thread(executer, left);
	maker(NULL);
}

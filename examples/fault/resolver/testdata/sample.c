// Resolve looks up a name in a thread of its own and goes on without the answer if that takes long.
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t known = PTHREAD_COND_INITIALIZER;
static int done;

static void *lookup(void *name)
{
	struct addrinfo *a = NULL;
	int err = getaddrinfo(name, "80", NULL, &a);

	pthread_mutex_lock(&lock);
	done = err ? -1 : 1;
	pthread_cond_signal(&known);
	pthread_mutex_unlock(&lock);
	return NULL;
}

int main(void)
{
	pthread_t t;
	struct timespec until;
	int err = 0;

	pthread_create(&t, NULL, lookup, "127.0.0.1");
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	pthread_mutex_lock(&lock);
	while (!done && err != ETIMEDOUT)
		err = pthread_cond_timedwait(&known, &lock, &until);
	puts(done > 0 ? "the name server has answered" : done < 0 ? "the name server has failed"
		: "the name server is slow: the address of last time is taken");
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < 3; i++)
		printf("request %d is served\n", i + 1);
	return 0;
}

// Works of the C library, linked statically: its own names of its functions are there.
#include "work.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

static int ascending(const void *a, const void *b)
{
	uint32_t x, y;

	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return x < y ? -1 : x > y;
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }
static int by_pointed(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void sort(void)
{
	uint32_t n[100];
	uint64_t wide[60];
	char words[60][13], *pointers[60], big[40][100];

	for (int i = 0; i < 100; i++)
		n[i] = number() % 70;
	for (int i = 0; i < 60; i++)
		wide[i] = number() % 1000;
	for (int i = 0; i < 60; i++)
		snprintf(words[i], sizeof words[i], "%u", number()), pointers[i] = words[i];
	for (int i = 0; i < 40; i++)
		memset(big[i], 'a' + number() % 26, 99), big[i][99] = 0;
	qsort(n, 100, sizeof *n, ascending);
	qsort(wide, 60, sizeof *wide, ascending);
	qsort(pointers, 60, sizeof *pointers, by_pointed);
	for (int i = 0; i < 60; i++)
		digest_bytes(pointers[i], strlen(pointers[i]));
	qsort(words, 60, sizeof *words, by_text);
	qsort(big, 40, sizeof *big, by_text);
	calls = 5;
	digest_bytes(n, sizeof n);
	digest_bytes(wide, sizeof wide);
	for (int i = 0; i < 40; i++)
		digest_bytes(big[i], 1);
	for (int i = 1; i < 100; i++)
		CHECK(n[i - 1] <= n[i]);
}

static void print(void)
{
	static const char *const flags[] = {"", "-", "+", " ", "#", "0", "'", "-#", "+0"};
	static const char *const widths[] = {"", "3", "17", ".0", ".2", ".7", "12.5", "30.20"};
	static const double numbers[] = {0.0, -0.0, 1.0, 0.1, -2.5, 1e-7, 123456.789, 9.99999e22, -1.7976931348623157e308, 5e-324, 1 / 0., -(0 / 0.)};
	char format[40], out[700];

	for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
		for (size_t w = f % 8; w < sizeof widths / sizeof *widths; w += 8) {
			static const char kinds[] = "fegaEGA";
			for (size_t i = f % 3; i < sizeof numbers / sizeof *numbers; i += 3) {
				snprintf(format, sizeof format, "[%%%s%s%c]", flags[f], widths[w], kinds[(i + f + w) % 7]);
				digest_bytes(out, snprintf(out, sizeof out, format, numbers[i]));
			}
			snprintf(format, sizeof format, "[%%%s%s%s]", flags[f], widths[w], w % 2 ? "ld" : "lx");
			digest_bytes(out, snprintf(out, sizeof out, format, (long)number() * 1000003));
		}
	digest_bytes(out, snprintf(out, sizeof out, "%2$*1$d|%3$.*1$s|%4$c%%%5$hho", 5, -42, "abcdefgh", 'x', 300));
	digest_bytes(out, snprintf(out, sizeof out, "%ls|%lc|%10.3Lf|%zu|%jd|%td", L"wide", L'w', 3.14159L, sizeof out, (intmax_t)-1, (ptrdiff_t)9));
	FILE *f = fmemopen(out, sizeof out, "w");
	CHECK(fprintf(f, "%s %i %#o\n", "to a stream", -7, 8) > 0 && !fclose(f));
	digest_bytes(out, strlen(out));
	double d;
	int i, n;
	char s[20];
	CHECK(sscanf("  -12.5e3xyz 077 word", "%lfxyz %i %19s%n", &d, &i, s, &n) == 3 && n == 21 && !strcmp(s, "word"));
	digest_bytes(&d, sizeof d);
	digest_bytes(&i, sizeof i);
	for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
		snprintf(out, sizeof out, "%.17g", numbers[k]);
		d = strtod(out, NULL);
		digest_bytes(&d, sizeof d);
	}
}

static void heap(void)
{
	unsigned char *p[128] = {0};
	size_t size[128] = {0};

	for (int i = 0; i < 300; i++) {
		int k = number() % 128;
		uint32_t r = number();
		// Sizes of all kinds of bins, and some that are mapped.
		size_t n = r % 4 == 0 ? r / 4 % 40 : r % 4 == 1 ? r / 4 % 1100 : r % 64 == 2 ? 140000 + r / 64 % 4096 : r / 4 % 6000;

		for (size_t j = 0; j < size[k]; j += 1 + size[k] / 8)
			CHECK(p[k][j] == (unsigned char)(k + j));
		switch (number() % 4) {
		case 0:
			free(p[k]);
			p[k] = NULL, size[k] = 0;
			continue;
		case 1:
			p[k] = realloc(p[k], n + 1), size[k] = n;
			break;
		case 2:
			free(p[k]);
			p[k] = calloc(1, n + 1), size[k] = n;
			CHECK(!p[k][0] && !p[k][n / 2] && !p[k][n]);
			break;
		default:
			free(p[k]);
			p[k] = i % 5 ? malloc(n) : aligned_alloc(256, n), size[k] = n;
		}
		for (size_t j = 0; j < n; j += 1 + n / 8)
			p[k][j] = k + j;
		digest_bytes(&size[k], sizeof size[k]);
	}
	for (int k = 0; k < 128; k++)
		free(p[k]);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, checked, again;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t readers = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static volatile long counter, turns;

enum { THREADS = 4, ROUNDS = 40 };

static void *contend(void *arg)
{
	pthread_barrier_wait(&barrier);
	for (long i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		long seen = counter;
		if (i % 8 == (long)arg) // the others come and must wait
			sched_yield();
		counter = seen + 1;
		pthread_mutex_unlock(&mutex);
		CHECK(!pthread_mutex_lock(&again) && !pthread_mutex_trylock(&again));
		CHECK(!pthread_mutex_unlock(&again) && !pthread_mutex_unlock(&again));
		CHECK(!pthread_mutex_lock(&checked) && pthread_mutex_lock(&checked) == EDEADLK && !pthread_mutex_unlock(&checked));
		if (i % 4 == 0) {
			CHECK(!pthread_rwlock_wrlock(&readers) && !pthread_rwlock_unlock(&readers));
		} else {
			CHECK(!pthread_rwlock_rdlock(&readers) && !pthread_rwlock_unlock(&readers));
		}
	}
	for (int i = 0; i < 10; i++) { // in turns
		pthread_mutex_lock(&mutex);
		while (turns % THREADS != (long)arg)
			pthread_cond_wait(&turned, &mutex);
		turns++;
		pthread_cond_broadcast(&turned);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void locks(void)
{
	pthread_t threads[THREADS];
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&again, &attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&checked, &attr);
	pthread_barrier_init(&barrier, NULL, THREADS);
	counter = turns = 0;
	for (long i = 0; i < THREADS; i++)
		threads[i] = thread(contend, i);
	calls = THREADS * ROUNDS; // of pthread_mutex_trylock
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(counter == THREADS * ROUNDS);
	CHECK(turns == THREADS * 10);
	digest_bytes((void *)&counter, sizeof counter);
	digest_bytes((void *)&turns, sizeof turns);
}

int main(void)
{
	static const struct work works[] = {
		{"sort", sort, NULL}, {"print", print, NULL}, {"heap", heap, NULL}, {"locks", locks, NULL}, {NULL, NULL, NULL},
	};

	return serve(works);
}

// Each implementation that the C library has of its memory and string functions,
// called by its own name. Linked statically, where those names can be reached.
#include "work.h"

#include <stddef.h>
#include <sys/mman.h>

enum { PAGE = 4096, SIZE = 100 * PAGE };

// Two areas with no memory behind them, and one for what must come out.
static unsigned char *area[2], *model;

// A call of the function that the work is about.
#define CALL(function) (calls++, function)

static void fill(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = number() >> 8 | 1;
}

static unsigned char *map(size_t n)
{
	unsigned char *p = mmap(NULL, n + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && !mprotect(p + n, PAGE, PROT_NONE));
	return p;
}

static void copy_one(size_t n, unsigned char *to, const unsigned char *from)
{
	void *(*move)(void *, const void *, size_t) = current->function;

	for (size_t i = 0; i < n; i++)
		model[i] = from[i];
	CHECK(CALL(move)(to, from, n) == to);
	for (size_t i = 0; i < n; i++)
		if (to[i] != model[i]) {
			CHECK(!"the copy is right");
			break;
		}
	digest_bytes(to, n < 700 ? n : 700);
}

static void copy(void)
{
	fill(area[0], 16 * PAGE);
	for (size_t n = 0; n < 1300; n += n < 70 ? 1 : 1 + n / 7) {
		copy_one(n, area[1] + number() % 64, area[0] + number() % 64);
		copy_one(n, area[1] + SIZE - n, area[0] + SIZE - n);
	}
	copy_one(PAGE, area[1] + 64, area[0]);
	copy_one(5 * PAGE + 13, area[1] + 5, area[0] + 128);
	copy_one(5 * PAGE, area[1] + SIZE - 6 * PAGE, area[0]);
	copy_one(70 * PAGE + 3, area[1] + 1000, area[0] + 7);
}

static void move(void)
{
	copy();
	for (size_t n = 1; n < 1300; n += 1 + n / 3) { // overlapping
		size_t by = 1 + number() % n;

		copy_one(n, area[0] + 100, area[0] + 100 + by);
		copy_one(n, area[0] + 100 + by, area[0] + 100);
	}
	copy_one(3 * PAGE, area[0], area[0] + 9);
	copy_one(3 * PAGE, area[0] + 9, area[0]);
	copy_one(3 * PAGE, area[0], area[0]);
}

static void set(void)
{
	void *(*set)(void *, int, size_t) = current->function;

	for (size_t n = 0; n < 20 * PAGE; n += n < 70 ? 1 : n / 2) {
		unsigned char *to = area[0] + 64 + number() % 70;
		int c = number();

		fill(to - 1, n + 2);
		unsigned char before = to[-1], after = to[n];
		CHECK(CALL(set)(to, c, n) == to && to[-1] == before && to[n] == after);
		for (size_t i = 0; i < n; i++)
			if (to[i] != (unsigned char)c) {
				CHECK(!"the memory is set");
				break;
			}
		digest_bytes(to, n < 300 ? n : 300);
	}
}

// end makes a string of n bytes; every other one ends where the area does.
static unsigned char *end(int which, size_t n)
{
	unsigned char *s = n % 2 ? area[which] + SIZE - n - 1 : area[which] + 2 * PAGE - number() % 200;

	fill(s, n);
	s[n] = 0;
	return s;
}

static void length(void)
{
	size_t (*length)(const void *) = current->function;

	for (size_t n = 0; n < 900; n += n < 70 ? 1 : 1 + n / 7)
		CHECK(CALL(length)(end(0, n)) == n);
	digest_bytes(area[0], 2 * PAGE);
}

static void compare(void)
{
	int (*compare)(const void *, const void *, size_t) = current->function;

	for (size_t n = 0; n < 900; n += n < 70 ? 1 : 1 + n / 7) {
		unsigned char *a = area[0] + number() % 64, *b = n % 2 ? area[1] + number() % 64 : area[1] + SIZE - n;
		size_t at = n ? number() % n : 0;

		fill(a, n);
		for (size_t i = 0; i < n; i++)
			b[i] = a[i];
		CHECK(CALL(compare)(a, b, n) == 0);
		if (n) {
			b[at] ^= 1 + number() % 255;
			CHECK((CALL(compare)(a, b, n) < 0) == (a[at] < b[at]));
			CHECK(CALL(compare)(a, b, at) == 0);
		}
		digest_bytes(b, n);
	}
}

// compare_text serves strcmp; and strncmp, which gets a limit that never matters.
static void compare_text(void)
{
	int (*compare)(const void *, const void *, size_t) = current->function;

	for (size_t n = 0; n < 900; n += n < 70 ? 1 : 1 + n / 7) {
		unsigned char *a = end(0, n), *b = end(1, n);
		size_t at = number() % (n + 1);

		for (size_t i = 0; i < n; i++)
			b[i] = a[i];
		CHECK(CALL(compare)(a, b, 100000) == 0);
		b[at] = at == n ? 0 : (b[at] ^ 1 << number() % 8);
		int r = CALL(compare)(a, b, 100000);
		CHECK((r < 0) == (a[at] < b[at]) && (r == 0) == (a[at] == b[at]));
		digest_bytes(b, n);
	}
}

// find serves memchr, strchr, strrchr and memrchr, for a byte that is there at most once.
static void find_in(int text, int sized)
{
	void *(*find)(const void *, int, size_t) = current->function;

	for (size_t n = 0; n < 900; n += n < 70 ? 1 : 1 + n / 7) {
		unsigned char *s = end(0, n);
		size_t at = n ? number() % n : 0;

		for (size_t i = 0; i < n; i++)
			if (s[i] == 'X')
				s[i] = 'x';
		CHECK(CALL(find)(s, 'X', n) == NULL);
		if (n) {
			s[at] = 'X';
			CHECK(CALL(find)(s, 'X', n) == s + at);
		}
		if (text)
			CHECK(CALL(find)(s, 0, n) == s + n);
		if (sized && n)
			CHECK(CALL(find)(s, s[at], at + 1) == s + at);
		digest_bytes(s, n);
	}
}

static void find(void) { find_in(0, 1); }
static void find_text(void) { find_in(1, 0); }

static void copy_text(void)
{
	char *(*copy)(void *, const void *) = current->function;

	for (size_t n = 0; n < 900; n += n < 70 ? 1 : 1 + n / 7) {
		unsigned char *s = end(0, n), *to = area[1] + SIZE - n - 1 - number() % 50;

		CHECK(CALL(copy)(to, s) == (char *)to && to[n] == 0);
		for (size_t i = 0; i < n; i++)
			if (to[i] != s[i]) {
				CHECK(!"the string is right");
				break;
			}
		digest_bytes(to, n);
	}
}

#define EACH(row) \
	row(memmove_sse2_unaligned, move, "sse2") row(memmove_sse2_unaligned_erms, move, "sse2") \
	row(memmove_ssse3, move, "ssse3") row(memmove_erms, move, "sse2") \
	row(memmove_avx_unaligned, move, "avx") row(memmove_avx_unaligned_erms, move, "avx") \
	row(memmove_avx_unaligned_rtm, move, "rtm") row(memmove_avx_unaligned_erms_rtm, move, "rtm") \
	row(memmove_evex_unaligned, move, "avx512vl") row(memmove_evex_unaligned_erms, move, "avx512vl") \
	row(memmove_avx512_unaligned, move, "avx512vl") row(memmove_avx512_unaligned_erms, move, "avx512vl") \
	row(memmove_avx512_no_vzeroupper, move, "avx512f") \
	row(memset_sse2_unaligned, set, "sse2") row(memset_sse2_unaligned_erms, set, "sse2") row(memset_erms, set, "sse2") \
	row(memset_avx2_unaligned, set, "avx2") row(memset_avx2_unaligned_erms, set, "avx2") \
	row(memset_evex_unaligned, set, "avx512bw") row(memset_evex_unaligned_erms, set, "avx512bw") \
	row(memset_avx512_unaligned, set, "avx512bw") row(memset_avx512_unaligned_erms, set, "avx512bw") \
	row(memset_avx512_no_vzeroupper, set, "avx512f") \
	row(strlen_sse2, length, "sse2") row(strlen_avx2, length, "avx2") row(strlen_evex, length, "avx512bw") \
	row(strlen_evex512, length, "avx512bw") row(strlen_avx2_rtm, length, "rtm") \
	row(memcmp_sse2, compare, "sse2") row(memcmp_avx2_movbe, compare, "avx2") row(memcmp_evex_movbe, compare, "avx512bw") \
	row(strcmp_sse2, compare_text, "sse2") row(strcmp_sse2_unaligned, compare_text, "sse2") \
	row(strcmp_sse42, compare_text, "sse4.2") row(strcmp_avx2, compare_text, "avx2") row(strcmp_evex, compare_text, "avx512bw") \
	row(strncmp_sse2, compare_text, "sse2") row(strncmp_sse42, compare_text, "sse4.2") \
	row(strncmp_avx2, compare_text, "avx2") row(strncmp_evex, compare_text, "avx512bw") \
	row(memchr_sse2, find, "sse2") row(memchr_avx2, find, "avx2") row(memchr_evex, find, "avx512bw") \
	row(memrchr_sse2, find, "sse2") row(memrchr_avx2, find, "avx2") row(memrchr_evex, find, "avx512bw") \
	row(strchr_sse2, find_text, "sse2") row(strchr_sse2_no_bsf, find_text, "sse2") \
	row(strchr_avx2, find_text, "avx2") row(strchr_evex, find_text, "avx512bw") \
	row(strrchr_sse2, find_text, "sse2") row(strrchr_avx2, find_text, "avx2") row(strrchr_evex, find_text, "avx512bw") \
	row(strcpy_sse2, copy_text, "sse2") row(strcpy_sse2_unaligned, copy_text, "sse2") row(strcpy_avx2, copy_text, "avx2") \
	row(strcpy_evex, copy_text, "avx512bw")

// Weak: another version of the library may lack some.
#define DECLARE(name, run, needs) extern char __##name[] __attribute__((weak));
EACH(DECLARE)

#define USABLE(name, run, needs) \
	if (__##name && __builtin_cpu_supports(needs)) \
		works[n++] = (struct work){#name, run, __##name};

int main(void)
{
	static struct work works[100];
	char names[4000];
	int n = 0, at = 0;

	EACH(USABLE)
	area[0] = map(SIZE);
	area[1] = map(SIZE);
	model = map(SIZE);
	for (int i = 0; i < n; i++)
		at += snprintf(names + at, sizeof names - at, " %s", works[i].name);
	dprintf(1, "works%s\n", names);
	// So that all of them are linked.
	CHECK(!memcmp(memmove(area[0], memset(area[1], 1, 9), 9), area[1], 9) && !memchr(area[0], 2, 9) && !memrchr(area[0], 2, 9));
	area[0][9] = area[1][9] = 0;
	char *s = (char *)area[0];
	CHECK(strlen(s) == 9 && !strcmp(s, (char *)area[1]) && !strncmp(s, s, 3) && !strchr(s, 2) && !strrchr(s, 2));
	CHECK(strcpy(s, (char *)area[1]) == s);
	return serve(works);
}

/* One function for each way in which the System V ABI returns a value. */
#include <complex.h>
#include <math.h>
#include <stdbool.h>

enum color { RED, GREEN = 5, BLUE = -1 };
typedef struct { int x, y; } point;
typedef struct { double a, b; } pair;
typedef struct { long n; double d; } mixed;
typedef struct { double d; long n; } mixed2;
typedef struct { float a, b, c; } three;
typedef struct { long a, b, c; } big;
typedef struct { long double l; } wrapped;
typedef union { int i; float f; } either;
typedef int quad __attribute__((vector_size(16)));

#define F __attribute__((noinline, noclone))
volatile int sink;

F void nothing(void) { sink++; }
F int negative(int i) { return i - 100; }
F unsigned char byte(int i) { return i; }
F bool truth(int i) { return i; }
F long long wide(void) { return -(1LL << 40); }
F unsigned long most(void) { return -1; }
F char letter(void) { return 'A'; }
F enum color color(void) { return BLUE; }
F float single(void) { return 1.5f; }
F double dbl(void) { return -2.25; }
F long double extended(void) { return 4.5L; }
F long double notanumber(void) { return nanl(""); }
F _Float128 quadruple(void) { return -0.3Q; }
F const char *text(void) { return "say \"hi\"\n"; }
F const char *none(void) { return 0; }
F void *pointer(void) { return (void *)0x1234; }
F point two_ints(void) { return (point){1, -2}; }
F pair two_doubles(void) { return (pair){3.5, 4.5}; }
F mixed int_double(void) { return (mixed){5, 6.5}; }
F mixed2 double_int(void) { return (mixed2){7.5, -8}; }
F three three_floats(void) { return (three){1, 2, 3.5f}; }
F big in_memory(void) { return (big){1, 2, 3}; }
F wrapped in_st0(void) { return (wrapped){-0.5L}; }
F either of_two(void) { return (either){.i = 12}; }
F __int128 huge(void) { return ((__int128)1 << 64) | 2; }
F float complex cfloat(void) { return 1.0f + 2.0f * I; }
F double complex cdouble(void) { return 3.0 - 4.0 * I; }
F long double complex cextended(void) { return 5.0L + 6.0L * I; }
F quad vector(void) { return (quad){1, 2, 3, -4}; }

int main(void)
{
	nothing();
	sink += negative(58) + byte(200) + truth(1) + (int)wide() + (int)most() + letter() + color();
	sink += (int)(single() + dbl() + extended() + notanumber() + quadruple());
	sink += (text() != 0) + (none() != 0) + (pointer() != 0);
	sink += two_ints().x + (int)two_doubles().a + (int)int_double().n + (int)double_int().n + (int)three_floats().c;
	sink += (int)in_memory().a + (int)in_st0().l + of_two().i + (int)huge();
	sink += (int)creal(cfloat()) + (int)creal(cdouble()) + (int)creall(cextended()) + vector()[0];
	return 0;
}

// Members of base classes, and references.
struct First { long first; };
struct Second { long second; };
struct Derived : First, Second { int own; Derived *self; };

volatile long sink;

__attribute__((noinline)) void take(Derived *d, Derived &r) { sink += d->own + r.first; }

int main()
{
	Derived d;
	d.first = 1, d.second = 2, d.own = 3, d.self = &d;
	take(&d, d);
	return 0;
}

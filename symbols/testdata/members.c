/* A parameter from which everything is reached that C can nest. */
struct leaf {
	short id;
	unsigned char flags : 3, mode : 5;
	unsigned int wide : 17;
	long more : 40;
	char name[8];
	const char *text;
};

struct node {
	int kind;
	union {
		long number;
		struct { unsigned low; int high; };
	};
	struct leaf inner;
	struct node *next;
	struct opaque *hidden;
	double weight;
};

typedef const struct node *handle;

volatile int sink;

__attribute__((noinline)) int take(handle n, int a, int b, int c, int d, int e, handle last, struct leaf byvalue, double x, char *s)
{
	sink += n->kind + a + b + c + d + e + last->kind + byvalue.id + (int)x + s[0];
	return sink;
}

int main(void)
{
	static struct node two = {.kind = 2, .number = -3, .inner = {.id = -7, .flags = 5, .mode = 19, .wide = 70000, .more = -2, .name = "two", .text = "second"}};
	static struct node one = {.kind = 1, .number = 0x500000004, .inner = {.id = 300, .flags = 2}, .next = &two, .weight = 1.5};
	return take(&one, 1, 2, 3, 4, 5, &two, two.inner, 1.5, "text") == 0;
}

// Functions with parameters that lead somewhere. "call N" handles a request with the number N and prints "ret N".
#include "prog.h"

struct request {
	int number;
	const char *path;
	char method[8];
	unsigned char flags : 3, version : 5;
	struct { short code; } status;
	struct request *next;
};

REAL struct request *handle(struct request *r, unsigned count, const char *text, char c, long e, void *f, short seventh)
{
	CHECK(r->next->number == (int)count && text[0] == 't' && c == 'c' && e == -5 && f == 0 && seventh == -7);
	return r->next;
}

REAL void done(long number) { CHECK(number >= 0); }

static int call(int n)
{
	struct request second = {.number = n, .path = "/second", .method = "PUT", .flags = 6, .version = 17, .status = {-404}};
	struct request first = {.number = n + 1, .path = "/first", .method = "GET", .flags = 1, .status = {200}, .next = &second};
	struct request *r = handle(&first, n, "text", 'c', -5, 0, -7);
	done(n);
	return r->number;
}

int main(void)
{
	char line[64];
	int n;
	say("ready");
	while (hear(line, sizeof line)) {
		if (sscanf(line, "call %d", &n) == 1)
			say("ret %d", call(n));
		else
			CHECK(!"known command");
	}
	return verdict();
}

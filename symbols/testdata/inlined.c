// twice is inlined in two places, and exists for itself too. split calls itself: its copies are
// in its own body.
int twice(int x) { return x * 2 + 1; }

int split(int x)
{
	if (x <= 1)
		return 1;
	return x * split(x - 1) + split(x / 2);
}

int first(int *p) { return twice(p[0]); }
int second(int *p) { return 3 * twice(p[1]) * twice(0); }

int main(int argc, char **argv)
{
	int p[2] = { argc, argc };
	return first(p) + second(p) + split(argc) + (argv == 0);
}

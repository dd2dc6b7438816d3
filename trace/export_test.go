package trace

// AtMost has patterns stand for n places in libraries that come, until what it returns is called.
func AtMost(n int) (back func()) {
	before := mostComing
	mostComing = n
	return func() { mostComing = before }
}

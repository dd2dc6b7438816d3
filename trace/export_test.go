package trace

// Remembered is the most programs that one of pr's points remembers. The session is closed.
func Remembered(pr *Probe) (n int) {
	for _, pt := range pr.points.All() {
		n = max(n, len(pt.elsewhere))
	}
	return n
}

// AtMost has patterns stand for n places in libraries that come, until what it returns is called.
func AtMost(n int) (back func()) {
	before := mostComing
	mostComing = n
	return func() { mostComing = before }
}

// Resolved is how often pr's patterns were looked up in what came. The session is closed.
func Resolved(pr *Probe) (n int) {
	for _, pn := range pr.waits.patterns.All() {
		n += pn.resolved
	}
	return n
}

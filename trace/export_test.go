package trace

// Remembered is the most programs that one of pr's points remembers. The session is closed.
func Remembered(pr *Probe) (n int) {
	for _, pt := range pr.points {
		n = max(n, len(pt.elsewhere))
	}
	return n
}

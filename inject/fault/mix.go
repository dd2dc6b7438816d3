package fault

import "math"

// Mix returns the n-th random number of the sequence that belongs to seed:
// splitmix64 (Steele, Lea and Flood 2014), whose n-th output needs no output
// before it. So the target and the tracer get the same numbers.
func Mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// below returns the number that p·2⁶⁴ rounds up to, for p < 1: a number x of Mix
// says yes exactly if it is below.
func below(p float64) uint64 { return uint64(math.Ceil(math.Ldexp(p, 64))) }

// isChosen reports whether random number n of seed chooses the call, with probability p.
func isChosen(p float64, seed, n uint64) bool { return p >= 1 || Mix(seed, n) < below(p) }

package bench

import (
	"fmt"
	"slices"
)

// series is the measurements of one thing in nanoseconds, one a round.
type series []float64

func (s series) sorted() series { return slices.Sorted(slices.Values(s)) }

// median is the middle one, of an even number the larger of the two; s is not empty.
func (s series) median() float64 { return s.sorted()[len(s)/2] }

// ratio is the median of the rounds' own ratios to another series: a disturbance of a
// round disturbs both. Either may have ended earlier.
func (s series) ratio(to series) float64 {
	var r series
	for i := range min(len(s), len(to)) {
		r = append(r, s[i]/to[i])
	}
	return r.median()
}

// figure prints nanoseconds with three or four digits.
func figure(ns float64) string {
	if ns < 100 {
		return fmt.Sprintf("%.1f", ns)
	}
	return fmt.Sprintf("%.0f", ns)
}

// times prints a ratio.
func times(r float64) string {
	switch {
	case r >= 10:
		return fmt.Sprintf("%.0f×", r)
	case r < 0.1:
		return fmt.Sprintf("%.3f×", r)
	}
	return fmt.Sprintf("%.2f×", r)
}

package escape

import (
	"strconv"
	"strings"
)

// Count is a number of things: "1 place", "2 places", "3 processes".
func Count[N ~int | ~int64 | ~uint64](n N, noun string) string {
	s := strconv.FormatInt(int64(n), 10)
	if n > 0 {
		s = strconv.FormatUint(uint64(n), 10)
	}
	switch {
	case n == 1:
		return s + " " + noun
	case strings.HasSuffix(noun, "s"):
		return s + " " + noun + "es"
	}
	return s + " " + noun + "s"
}

package escape

import (
	"math"
	"testing"
)

func TestCount(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Count(0, "place"), "0 places"},
		{Count(1, "place"), "1 place"},
		{Count(2, "place"), "2 places"},
		{Count(1, "process"), "1 process"},
		{Count(3, "process"), "3 processes"},
		{Count(-1, "call"), "-1 calls"},
		{Count(uint64(math.MaxUint64), "hit"), "18446744073709551615 hits"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

package lex

import (
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "+0": 0, "010": 8, "0x10": 16, "0X1f": 31, "-0x10": -16, "-010": -8, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		if v, ok := Signed(s); !ok || v != want {
			t.Errorf("%s is %d, %v", s, v, ok)
		}
	}
	for _, s := range []string{"", "+", "-", "++1", "--1", "+-1", "-+1", "0x", "0b1", "0o7", "1_0", "08", "0xg", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "1x"} {
		if v, ok := Signed(s); ok {
			t.Errorf("%q is %d", s, v)
		}
	}
}

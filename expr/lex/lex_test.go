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

func TestTheTypeFollowsAColonThatIsNoPartOfAName(t *testing.T) {
	for s, want := range map[string]int{"a": -1, "a:u8": 1, "a::b": -1, "a::b:u8": 4, "a[1:3]": -1, "a[1:3]:u8": 6, "::a": 0, "a::": 1, ":": 0, "": -1, "a:::b": 1, "a]:b": 2, "x::y[a::b]::z:s8": 13} {
		if got := TypeColon(s); got != want {
			t.Errorf("%s: %d, not %d", s, got, want)
		}
	}
}

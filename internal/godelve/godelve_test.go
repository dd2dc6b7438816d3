package godelve

import (
	"errors"
	"testing"
)

// TestNothingIsCalledAndShiftsAreSmall: what would call a function of the target's is refused before there is a target.
func TestNothingIsCalledAndShiftsAreSmall(t *testing.T) {
	for expr, want := range map[string]error{
		"a.Items[len(a.Items)-1].Price * 2": nil, "m[\"k\"]": nil, "uint8(x) + cap(y)": nil, "(*main.T)(p).x": nil, "x.(*main.T).f == nil": nil, "1 << 5": nil, "a >> b": nil, "[]byte(s)": nil,
		"f(1)": ErrCall, "a.Method()": ErrCall, "pkg.F(x) + 1": ErrCall, "func() {}()": ErrCall, "call(f)": ErrCall, "1 << n": ErrShift, "1 << 1000000000": ErrShift, "a +": ErrSyntax, "": ErrSyntax, "x = 1": ErrSyntax,
	} {
		if err := Check(expr); !errors.Is(err, want) {
			t.Errorf("%s: %v, not %v", expr, err, want)
		}
	}
}

// FuzzCheck: any text is an expression or is refused.
func FuzzCheck(f *testing.F) {
	f.Add("a.b[1] << 3")
	f.Fuzz(func(_ *testing.T, expr string) { _ = Check(expr) })
}

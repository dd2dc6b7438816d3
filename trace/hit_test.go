package trace

import (
	"testing"
	"time"
)

func TestAHitIsWrittenAsACall(t *testing.T) {
	ret, took := int64(-1), 12*time.Microsecond
	for _, c := range []struct {
		hit  Hit
		want string
	}{
		{Hit{Probe: "foo"}, "foo()"},
		{Hit{Probe: "foo", Args: []Arg{{Name: "n", Value: int64(-3)}, {Name: "s", Value: "a\x1b\"b"}}}, `foo(n=-3, s="a\x1b\"b")`},
		{Hit{Probe: "foo%return", Ret: &ret, Duration: &took}, "foo() = -1 in 12µs"},
		{Hit{Probe: "foo%return", Ret: &ret, Duration: &took, Stops: 2, DurationMin: 1}, "foo() = -1 in ~12µs"},
		{Hit{Probe: "foo%return", Ret: &ret, Duration: &took, Stops: 3}, "foo() = -1 in ~<12µs"},
		{Hit{Probe: "foo", Ret: &ret, Results: []Arg{}}, "foo()"},
		{Hit{Probe: "foo", Ret: &ret, Results: []Arg{{Name: "ret", Text: "RED"}}}, "foo() = RED"},
		{Hit{Probe: "main.f", Ret: &ret, Results: []Arg{{Name: "~r0", Value: uint64(1)}, {Name: "err", Text: "nil"}}}, "main.f() = (1, err=nil)"},
		{Hit{Probe: "f", Args: []Arg{{Name: "v"}, {Name: "b", Value: true}, {Name: "d", Value: 2.5}, {Name: "l", Value: composite{v: []int{1}}}, {Name: "x", Text: "\x1b"}}}, `f(v=?, b=true, d=2.5, l=[1], x=\x1b)`},
	} {
		if got := c.hit.String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestArgumentsAreFoundByName(t *testing.T) {
	h := Hit{Args: []Arg{{Name: "n", Value: int64(-3)}, {Name: "u", Value: uint64(7)}, {Name: "b", Value: true}, {Name: "s", Value: "x"}}}
	for name, want := range map[string]int64{"n": -3, "u": 7, "b": 1} {
		if v, ok := h.Arg(name).Int(); !ok || v != want {
			t.Errorf("%s is %d, %v", name, v, ok)
		}
	}
	for _, name := range []string{"s", "none"} {
		if v, ok := h.Arg(name).Int(); ok {
			t.Errorf("%s is %d", name, v)
		}
	}
}

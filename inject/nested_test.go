package inject

import (
	"testing"

	"github.com/gokprobe/gokprobe/inject/fault"
)

// A call that another one's actions lead to, such as a function that the thread is made to call while others run, has a number of its own.
func TestNestedCallsHaveNumbersOfTheirOwn(t *testing.T) {
	f := &Fault{in: &Injector{}, rule: Rule{Attr: fault.Always(), Do: make([]Action, 1)}, did: make([]uint64, 1)}
	p := &place{fault: f}
	inner := &Call{place: p}
	var drawn []uint64
	p.effects = []effect{{do: func(c *Call) (string, error) {
		if c != inner {
			p.act(inner)
		}
		drawn = append(drawn, f.nextDelay())
		return "done", nil
	}}}
	outer := &Call{place: p}
	if !p.act(outer) || inner.N != 1 || outer.N != 2 || f.injected != 2 {
		t.Errorf("the inner call is number %d, the outer one %d, of %d", inner.N, outer.N, f.injected)
	}
	if len(drawn) != 2 || drawn[0] == drawn[1] {
		t.Errorf("delays are those of the numbers %v", drawn)
	}
}

package trace

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/host"
)

// TestAFilterThatIsTooLongForTheTarget is the tracer's work; the target records all the same.
func TestAFilterThatIsTooLongForTheTarget(t *testing.T) {
	arg := fetch.Arg{Name: "n", Source: fetch.Source{Base: fetch.Argument, N: 1, Derefs: make([]fetch.Deref, 6)}, Type: values.TypeOf("s64")}
	l, err := fetch.NewLayout([]fetch.Arg{arg}, fetch.Env{ABI: host.C})
	if err != nil {
		t.Fatal(err)
	}
	text := "n!=1"
	for _, c := range []struct {
		times int
		exact bool
	}{{1, true}, {670, false}} {
		f, err := filter.Parser{Fields: fetch.Fields(l.Args())}.Parse(strings.Repeat(text+"&&", c.times) + text)
		if err != nil {
			t.Fatal(err)
		}
		made, err := newCapture([]string{processor}, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		made.add(l)
		exact, err := made.plan("test", f, l)
		if err != nil || made.made == nil || exact != c.exact {
			t.Errorf("%d conditions: %v, exact %v, want %v", c.times+1, err, exact, c.exact)
		}
	}
}

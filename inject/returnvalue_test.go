package inject

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

func TestValuesOfAFunctionsOwnTypeAreReturned(t *testing.T) {
	for _, fixture := range []struct {
		name  string
		cases []struct{ fn, value, want string }
	}{
		{"cvalues", []struct{ fn, value, want string }{
			{"negative", "-2147483648", "negative -2147483648"}, {"negative", "0xffffffff", "negative -1"}, {"negative", "'A'", "negative 65"},
			{"negative", "ENOENT", "negative 2"}, {"small", "65535", "small 65535"}, {"small", "-1", "small 65535"},
			{"truth", "true", "truth true"}, {"truth", "0", "truth false"}, {"half", "2.5", "half 2.5"}, {"half", "-1", "half -1"}, {"half", "1e300", "half 1e+300"},
			{"half", "Inf", "half inf"}, {"quarter", "-0.25", "quarter -0.25"}, {"quarter", "3", "quarter 3"},
			{"color", "BLUE", "color BLUE"}, {"color", "1", "color GREEN"},
			{"two_ints", "0", "two_ints {x: 0, y: 0}"}, {"int_double", "0", "int_double {n: 0, d: 0}"}, {"three_floats", "0", "three_floats {a: 0, b: 0, c: 0}"},
		}},
		{"cxxvalues", []struct{ fn, value, want string }{
			{"values::largest<double>", "-7.25", "values::largest<double> -7.25"}, {"values::level", "High", "values::level High"}, {"values::level", "0", "values::level Low"},
			{"values::derived", "0", "values::derived {Base: {id: 0}, extra: 0}"},
		}},
	} {
		p := on(t, testprog.Build(t, fixture.name))
		for _, c := range fixture.cases {
			p.returns(t, c.fn, Results{Value: c.value}, func() { p.callWants(t, c.fn+" "+c.value, c.want) })
		}
		p.leave(t)
	}
}

// callWants makes the fixture call its functions. One of them must have returned want.
func (p *patient) callWants(t *testing.T, what, want string) {
	t.Helper()
	name, _, _ := strings.Cut(want, " ")
	p.Send("call 4")
	found := false
	for line := p.Line(); !strings.HasPrefix(line, "ret "); line = p.Line() {
		if strings.HasPrefix(line, name+" ") {
			found = true
			if line != want {
				t.Errorf("%s: %s, want %s", what, line, want)
			}
		}
	}
	if !found {
		t.Errorf("%s: the program says nothing of %s", what, name)
	}
}

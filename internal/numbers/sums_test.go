package numbers

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// number is a variable of a program that compares sums.
type number struct {
	name, c, golang string
	typ             fetch.Type
	value           uint64
}

// sums are random ones of numbers: in C of any, in Go of one type.
type sums struct {
	*rand.Rand
	numbers []number
	of      string // a type of Go's; empty for any
}

func (s sums) leaf() string {
	switch s.IntN(8) {
	case 0:
		return fmt.Sprint(s.IntN(100))
	case 1:
		if s.of == "" { // C's types of such literals are others (C11 6.4.4.1)
			return fmt.Sprintf([]string{"%#x", "%#o"}[s.IntN(2)], s.Uint64()>>s.IntN(64))
		}
		return fmt.Sprint(s.IntN(100))
	}
	for {
		if n := s.numbers[s.IntN(len(s.numbers))]; s.of == "" || n.golang == s.of {
			return n.name
		}
	}
}

func (s sums) sum(depth int) string {
	if depth == 0 || s.IntN(4) == 0 {
		return s.leaf()
	}
	a := s.sum(depth - 1)
	if a[0] != '(' { // two constants might not fit
		a = s.numberOf()
	}
	switch s.IntN(8) {
	case 0:
		return fmt.Sprintf("(%s %s %d)", a, []string{"/", "%"}[s.IntN(2)], 1+s.IntN(100))
	case 1:
		return fmt.Sprintf("(%s %s %d)", s.numberOf(), []string{"<<", ">>"}[s.IntN(2)], s.IntN(32))
	}
	return fmt.Sprintf("(%s %s %s)", a, []string{"+", "-", "*", "&", "|", "^"}[s.IntN(6)], s.sum(depth-1))
}

// numberOf is a variable.
func (s sums) numberOf() string {
	for {
		if x := s.leaf(); x[0] > '9' {
			return x
		}
	}
}

// TestSumsAreTheCompilers: random comparisons of random sums, as the compiler has computed them. What has no value in the language is passed over.
func TestSumsAreTheCompilers(t *testing.T) {
	seed := testprog.Seed(t, 7)
	r := rand.New(rand.NewPCG(seed, 1))
	var numbers []number
	for i, x := range []struct {
		c, golang string
		kind      fetch.Kind
		size      int
	}{{"signed char", "int8", fetch.Signed, 1}, {"unsigned char", "uint8", fetch.Unsigned, 1}, {"short", "int16", fetch.Signed, 2}, {"unsigned short", "uint16", fetch.Unsigned, 2}, {"int", "int32", fetch.Signed, 4}, {"unsigned", "uint32", fetch.Unsigned, 4}, {"long", "int64", fetch.Signed, 8}, {"unsigned long", "uint64", fetch.Unsigned, 8}} {
		for j := range 3 {
			v, shift := r.Uint64(), 64-8*x.size
			if j == 0 { // a small one
				v = uint64(r.IntN(20) - 10)
			}
			if v <<= shift; x.kind == fetch.Signed {
				v = uint64(int64(v) >> shift)
			} else {
				v >>= shift
			}
			numbers = append(numbers, number{fmt.Sprintf("v%d", 3*i+j), x.c, x.golang, fetch.Type{Kind: x.kind, Size: x.size}, v})
		}
	}
	c, golang := "#include <stdio.h>\n", "package main\n\nimport \"fmt\"\n\n"
	var values []fetch.Value
	var fields []fetch.Field
	for _, n := range numbers {
		c += fmt.Sprintf("volatile %s %s = %#xul;\n", n.c, n.name, n.value)
		literal := fmt.Sprint(n.value)
		if n.typ.HasSign() {
			literal = fmt.Sprint(int64(n.value))
		}
		golang += fmt.Sprintf("var %s %s = %s\n", n.name, n.golang, literal)
		values, fields = append(values, fetch.Value{U: n.value}), append(fields, fetch.Field{Name: n.name, Type: n.typ})
	}
	for _, x := range []struct {
		maker
		source, main, print, end string
		rules                    filter.Rules
	}{
		{maker{name: "gcc", suffix: ".c"}, c, "int main(void)\n{\n", "\tputchar('0' + (%s));\n", "\treturn 0;\n}\n", filter.CRules},
		{maker{name: "go", suffix: ".go"}, golang, "func say(b bool) { fmt.Print(map[bool]int{true: 1}[b]) }\n\nfunc main() {\n", "\tsay(%s)\n", "}\n", filter.GoRules},
	} {
		var conds []string
		source := x.source + x.main
		for range 400 {
			s := sums{Rand: r, numbers: numbers}
			if x.rules == filter.GoRules {
				s.of = numbers[r.IntN(len(numbers))].golang
			}
			cond := fmt.Sprintf("(%s + %s) %s %s", s.sum(2), s.numberOf(), []string{"==", "!=", "<", "<=", ">", ">="}[r.IntN(6)], s.numberOf())
			conds, source = append(conds, cond), source+fmt.Sprintf(x.print, cond)
		}
		flags := map[filter.Rules][]string{filter.CRules: {"-w", "-O0", "-fwrapv"}}[x.rules]
		out, err := exec.Command(x.compile(t, flags, source+x.end)).Output()
		if err != nil || len(out) != len(conds) {
			t.Fatalf("%v: %d results", err, len(out))
		}
		known := 0
		parser := filter.Parser{Fields: fields, Exprs: true, Rules: func() filter.Rules { return x.rules }}
		for i, cond := range conds {
			f, err := parser.Parse(cond)
			if err != nil {
				t.Errorf("%s: %s: %v", x.name, cond, err)
				continue
			}
			op := strings.Fields(cond)[len(strings.Fields(cond))-2]
			not := map[string]string{"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[op]
			at := strings.LastIndex(cond, " "+op+" ")
			opposite, err := parser.Parse(cond[:at] + " " + not + " " + cond[at+len(op)+2:])
			if err != nil {
				t.Fatal(err)
			}
			holds := f.Match(values)
			if !holds && !opposite.Match(values) {
				continue
			}
			if known++; holds != (out[i] == '1') {
				t.Errorf("GOKPROBE_SEED=%d %s: %s: %t", seed, x.name, cond, holds)
			}
		}
		if known < len(conds)/3 || x.rules == filter.GoRules && known != len(conds) {
			t.Errorf("%s: %d of %d are known", x.name, known, len(conds))
		}
	}
}

// TestConditionsCompareVariables with each other, in the target and where threads stop.
func TestConditionsCompareVariables(t *testing.T) {
	for _, x := range []struct {
		maker
		source, entry string
		hold, fail    []string
	}{
		{maker{name: "g++", levels: [][]string{{"-g"}, {"-g", "-O2"}}, suffix: ".cc"}, sequencesCXX, "handle",
			[]string{"n < r", "o.id < n", "n - 25 == o.id", "b.c < b.b", "len(o.items) < n", "o.numbers[1] < b.a", "(n & 2) == b.b - 1", "o.items[n-41].kind + 4 == b.a - 5", "v != o.note", "o.note == o.next.note", "p == o.next && n & b.b", "!(n > r) || n == r", "(n) == 42", "n == (42) || o.numbers[n] < n"},
			[]string{"n > r", "o.note == v", "o.id == n", "p != o.next", "o.numbers[n] < n", "o.numbers[n] >= n", "!(o.numbers[n] < n)", "!(o.numbers[n] >= n) && n == (42)", "n + 1 == o.id"}},
		{maker{name: "rustc", levels: [][]string{{"-g", "-O"}}, suffix: ".rs"}, sequencesRust, "handle", []string{"o.arr[0] > o.arr[1]", "o.tup.0 + 3 == 0", "o.arr[n-41] < o.arr[n-42]"}, []string{"o.arr[0] < o.arr[1]"}},
		{maker{name: "go", levels: [][]string{{}}, suffix: ".go"}, sequencesGo, "main.handle",
			[]string{"n > len(names)", "by.ID + 25 == 42", "o.Items[0].Qty < o.Items[1].Qty", "o.Note == by.Note", "o.Note != o.Items[0].Name", "n - len(o.Items) == 40"}, []string{"n < len(names)", "o.Items[0].Qty >= o.Items[1].Qty", "o.Note != by.Note"}},
	} {
		for _, flags := range x.levels {
			bin := x.compile(t, flags, x.source)
			for _, stops := range []bool{false, true} {
				walk(t, bin, x.entry, nil, x.hold, x.fail, stops)
			}
		}
	}
}

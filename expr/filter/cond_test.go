package filter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
)

// The fields of random filters: numbers of all types in registers and in memory, some of it not readable, and
// what only the tracer knows.
var (
	randomArgs = func() (args []fetch.Arg) {
		for i, base := range []string{"rdi", "rsi"} {
			for _, kind := range []fetch.Kind{fetch.Unsigned, fetch.Signed} {
				for _, size := range []int{1, 2, 4, 8} {
					a := fetch.Arg{Name: fmt.Sprintf("n%d", len(args)), Source: fetch.Source{Name: base}, Type: fetch.Type{Kind: kind, Size: size}}
					if i > 0 {
						a.Source.Derefs = []fetch.Deref{{Off: 8}}
					}
					args = append(args, a)
				}
			}
		}
		return append(args,
			fetch.Arg{Name: "text", Source: fetch.Source{Name: "rsi", Derefs: []fetch.Deref{{}}}, Type: fetch.Type{Kind: fetch.String}},
			fetch.Arg{Name: "bits", Source: fetch.Source{Name: "rdi"}, Type: fetch.Type{Kind: fetch.BitField, Size: 4, Width: 3, Shift: 2}},
			fetch.Arg{Name: "sym", Source: fetch.Source{Name: "rdi"}, Type: fetch.Type{Kind: fetch.SymbolOff, Size: 8}},
		)
	}()
	randomTexts   = []string{"", "a", "abc", "axyz", "abcdefgh", "abcdefghi", "abcdefghijklmnopqrst", "abcdefghijklmnopqrstuvwxyzabcde", strings.Repeat("abcdefgh", 5)}
	randomNumbers = []int64{0, 1, -1, 2, 127, -128, 128, 255, 256, 32767, -32768, 65535, 1 << 31, -1 << 31, 1<<31 - 1, 1 << 32, 1<<63 - 1, -1 << 63, 77}
)

func randomFilter(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(4) > 0 {
		a, b := randomFilter(r, depth-1), randomFilter(r, depth-1)
		return []string{a + " && " + b, a + " || " + b, "(" + a + ") && (" + b + ")", "!(" + a + " || " + b + ")", "(" + a + " && " + b + ") || !" + b}[r.IntN(5)]
	}
	if r.IntN(4) == 0 { // two numbers
		other := [2]string{randomArgs[r.IntN(16)].Name, randomArgs[r.IntN(16)].Name}
		return []string{"", "!"}[r.IntN(2)] + "(" + other[0] + " " + ops[1+r.IntN(6)] + " " + other[1] + ")"
	}
	a := randomArgs[r.IntN(len(randomArgs))]
	not := []string{"", "!"}[r.IntN(2)]
	switch {
	case a.Type.Kind == fetch.String:
		text := randomTexts[r.IntN(len(randomTexts))]
		if r.IntN(3) == 0 {
			text = text[:r.IntN(len(text)+1)]
		}
		return not + "text" + []string{` == "` + text, ` != "` + text, ` ~ "` + text, ` ~ "` + text + "*", ` ~ "!` + text + "*", ` ~ "*` + text}[r.IntN(6)] + `"`
	case a.Type.Kind == fetch.SymbolOff:
		return not + []string{"sym.function == f", "sym.function != f"}[r.IntN(2)]
	case r.IntN(8) == 0:
		return not + a.Name + []string{" & ", " == ", " != "}[r.IntN(3)] + []string{"CPUS{0-2,127}", "CPUS{1}"}[r.IntN(2)]
	}
	n := randomNumbers[r.IntN(len(randomNumbers))]
	number := fmt.Sprint(n)
	if a.Type.Kind != fetch.Signed {
		number = fmt.Sprint(uint64(n))
	}
	return not + a.Name + " " + ops[1+r.IntN(len(ops)-1)] + " " + number
}

type regs map[string]uint64

func (r regs) Get(name string) (uint64, bool) { v, ok := r[name]; return v, ok }

// page is memory at 0x1000.
type page []byte

func (m page) ReadMemory(at arch.Addr, p []byte) error {
	if at < 0x1000 || int(at-0x1000)+len(p) > len(m) {
		return &arch.FaultError{Addr: at}
	}
	copy(p, m[at-0x1000:])
	return nil
}

// What Match keeps, the target keeps; and if the condition is exact, nothing else.
func TestTheTargetKeepsWhatMatchKeeps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l, err := fetch.NewLayout(randomArgs, fetch.Env{ABI: host.C})
	if err != nil {
		t.Fatal(err)
	}
	parser := Parser{Fields: fetch.Fields(randomArgs), Function: func(string) (uint64, uint64, bool) { return 100, 200, true }, Exprs: true}
	ring := program.Map{Kind: program.Ring, Size: 1 << 15}
	kept, exactly, more := 0, 0, 0
	for range 1500 {
		text := randomFilter(r, r.IntN(4))
		rules := Rules(r.IntN(3))
		parser.Rules = func() Rules { return rules }
		f, err := parser.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		cond, exact := f.Cond(l)
		p, err := l.Program("random", cond, ring)
		if err != nil {
			t.Fatal(err)
		}
		c, err := program.Check(p)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range 8 {
			n := randomNumbers[r.IntN(len(randomNumbers))]
			at := regs{"rdi": uint64(n), "rsi": []uint64{0x1000, 0x1ff0, 0x2000, 0}[r.IntN(4)]}
			mem := make(page, 4096)
			for i := range 8 {
				mem[8+i] = byte(randomNumbers[r.IntN(len(randomNumbers))])
			}
			content := randomTexts[r.IntN(len(randomTexts))]
			switch where := r.IntN(4); where {
			case 0, 1: // it may be cut off by the end of what can be read
				at["rsi"] = uint64(0x2000 - len(content) - where)
				copy(mem[4096-len(content)-where:], content)
			case 2:
				copy(mem, content)
			}
			payload, err := l.Run(at, mem, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := f.Match(l.Decode(payload, fetch.Host{}))
			got := recorded(t, c, at, mem)
			if want && !got || exact && want != got {
				t.Fatalf("%s: Match %v, the target %v, exact %v at %v", text, want, got, exact, at)
			}
			if want {
				kept++
			}
			if exact {
				exactly++
			}
			if got && !want {
				more++
			}
		}
	}
	if kept < 500 || exactly < 500 || more < 50 {
		t.Errorf("%d kept, %d exact, %d too many", kept, exactly, more)
	}
}

// recorded tells whether the program makes a record.
func recorded(t *testing.T, c *program.Checked, r regs, m page) bool {
	t.Helper()
	maps := [][]uint64{make([]uint64, c.Maps[0].Len()/8), make([]uint64, c.Maps[1].Len()/8)}
	if err := c.Run(&program.Env{Regs: r, Memory: m, Maps: maps}); err != nil {
		t.Fatal(err)
	}
	return maps[0][program.RingHead/8] > 0
}

// ones is a target where every field is 1.
type ones struct{}

func (ones) Expr(int) (program.Expr, bool) { return program.Const(1), true }

func (ones) Text(int) (program.Expr, int, bool) { return program.Const(1), fetch.StringSize, true }

func FuzzParse(f *testing.F) {
	for _, s := range []string{"int == -5 && !(small > 1 || path ~ '*a')", "cpu & CPUS{0,2-4}", "at.function == f(int)", "((", "'", "!", "a.ustring",
		"a + 1 == b && (c & 4) != d << 2 || e", "len(o.items[1].name) > 2 && (*p).x != 3 || $arg1:s32 == 5 && +0(%di):string ~ 'x*' && at.function == f(int)"} {
		f.Add(s)
	}
	exprs := testParser
	exprs.Exprs = true
	f.Fuzz(func(t *testing.T, text string) {
		for _, x := range Operands(text) {
			if x.Text == "" || text[x.At:x.At+len(x.Text)] != x.Text {
				t.Errorf("%q has the operand %+v", text, x)
			}
		}
		wide, wideErr := exprs.Parse(text)
		filter, err := testParser.Parse(text)
		if err != nil {
			return
		}
		if wideErr != nil || wide.Match(testValues) != filter.Match(testValues) {
			t.Errorf("%q is another filter where there are expressions: %v", text, wideErr)
		}
		again, err := testParser.Parse(filter.String())
		if err != nil || again.Match(testValues) != filter.Match(testValues) {
			t.Errorf("%q: %v", text, err)
		}
		negated, err := testParser.Parse("!(" + filter.String() + ")")
		if len(text) < MaxLen-4 && (err != nil || negated.Match(testValues) == filter.Match(testValues)) {
			t.Errorf("not %q: %v", text, err)
		}
		if _, exact := filter.Cond(ones{}); exact && strings.Contains(text, "CPUS{0,") {
			t.Errorf("%q: exact", text)
		}
		filter.Match(nil)
	})
}

func TestOperandsAreNamesAndExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"n > 5":                                   "n",
		"o.items[1].name == 'a && b' && m&1":      "o.items[1].name, m",
		"len(o->a) > 2||(*p).x!=3":                "len(o->a), (*p).x",
		"!(a==1 && !(b[0] < 2))":                  "a, b[0]",
		"$arg1:s32 == 5 && +0(%di):string ~ 'x'":  "$arg1:s32, +0(%di):string",
		"at.function == main && s.ustring == 'x'": "at, s",
		"cpu & CPUS{0,2} && *p == 1 && &x != 0":   "cpu, *p, &x",
		"$retval->len<3 && @errors>0":             "$retval->len, @errors",
		"bits:b4@4/32 == 3 && a:u8[4] == 1":       "bits:b4@4/32, a:u8[4]",
		"":                                        "",
	} {
		var got []string
		for _, x := range Operands(text) {
			got = append(got, x.Text)
			if text[x.At:x.At+len(x.Text)] != x.Text {
				t.Errorf("%s: %s is not at %d", text, x.Text, x.At)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s has the operands %q, not %s", text, got, want)
		}
	}
}

// short is a target that keeps 4 bytes of a string.
type short struct{ ones }

func (short) Text(int) (program.Expr, int, bool) { return program.Const(1), 5, true }

func TestStringsThatMayBeCutAreLeftToTheTracer(t *testing.T) {
	for text, want := range map[string]bool{`path == "abc"`: true, `path == "abcd"`: false, `path != "abcdef"`: false, `path ~ "abc"`: true, `path ~ "abc*"`: false} {
		f, err := Parse(text, testFields)
		if err != nil {
			t.Fatal(err)
		}
		if _, exact := f.Cond(short{}); exact != want {
			t.Errorf("%s: exact %v", text, exact)
		}
	}
}

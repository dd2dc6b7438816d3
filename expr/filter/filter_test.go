package filter

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

var (
	u8     = fetch.Type{Name: "u8", Kind: fetch.Unsigned, Size: 1}
	s32    = fetch.Type{Name: "s32", Kind: fetch.Signed, Size: 4}
	x64    = fetch.Type{Name: "x64", Kind: fetch.Hex, Size: 8}
	bit4   = fetch.Type{Name: "b4@4/32", Kind: fetch.BitField, Size: 4, Width: 4, Shift: 4}
	str    = fetch.Type{Name: "string", Kind: fetch.String}
	symbol = fetch.Type{Name: "symbol", Kind: fetch.SymbolOff, Size: 8}
	symstr = fetch.Type{Name: "symstr", Kind: fetch.SymStr}
	char4  = fetch.Type{Name: "char", Kind: fetch.Char, Size: 1, Count: 4}
	str2   = fetch.Type{Name: "string", Kind: fetch.String, Count: 2}
	u8s    = fetch.Type{Name: "u8", Kind: fetch.Unsigned, Size: 1, Count: 4}
)

var testFields = []fetch.Field{
	{Name: "common_pid", Type: s32}, {Name: "comm", Type: str}, {Name: "cpu", Type: s32},
	{Name: "small", Type: u8}, {Name: "int", Type: s32}, {Name: "ptr", Type: x64}, {Name: "nibble", Type: bit4},
	{Name: "path", Type: str}, {Name: "bad", Type: str}, {Name: "at", Type: symbol}, {Name: "sym", Type: symstr},
	{Name: "word", Type: char4}, {Name: "words", Type: str2}, {Name: "bytes", Type: u8s}, {Name: "sig", Type: s32}, {Name: "dsig", Type: s32},
}

func text(s string) fetch.Value { return fetch.Value{S: s} }

func number(n int64) fetch.Value { return fetch.Value{U: uint64(n)} }

var testValues = []fetch.Value{
	number(4711), text("redis-server"), number(3),
	number(200), number(-5), {U: 0xffff_8000_0000_0000}, number(9),
	text("/etc/passwd"), {Fault: true}, {U: 0x1005, S: "foo+0x5/0x10"}, text("foo+0x5/0x10"),
	{Elems: []fetch.Value{number('t'), number('e'), number(0), number('x')}}, {Elems: []fetch.Value{text("one"), text("two")}}, {Elems: make([]fetch.Value, 4)}, number(0), number(0),
}

var testParser = Parser{Fields: testFields, Function: func(name string) (uint64, uint64, bool) {
	return 0x1000, 0x1010, name == "foo" || name == "ns::f(int, char)" || name == "f(int)"
}}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"int == -5", true}, {"int==-5", true}, {"int != -5", false}, {"int < 0", true}, {"int <= -5", true}, {"int > -5", false}, {"int >= -4", false}, {"int >= -0x5", true},
		{"int == 4294967291", true}, // as an s32
		{"int & 1", true}, {"int & 4", false}, {"int & 0x80000000", true}, {"small & 0x48", true}, {"small & 7", false},
		{"small == 200", true}, {"small == 0310", true}, {"small > 199", true}, {"small < 201", true}, {"small == 456", true},
		{"ptr > 0x7fffffffffffffff", true}, {"ptr == 18446603336221196288", true}, {"ptr < 1", false}, {"ptr & 0x800000000000", true},
		{"nibble == 9", true}, {"nibble > 9", false}, {"at == 0x1005", true}, {"at >= 0x1006", false},
		{`path == "/etc/passwd"`, true}, {`path != '/etc/passwd'`, false}, {`path == "/etc"`, false}, {`path ~ "/etc/*"`, true}, {`path ~ "*pass*"`, true},
		{`path ~ "*wd"`, true}, {`path ~ "/???/p[a-b]ss[!x-z]d"`, true}, {`path ~ "!*wd"`, false}, {`path ~ "!x*"`, true}, {`path.ustring ~ "/e*"`, true},
		{`bad == ""`, true}, {`bad == "(fault)"`, false}, {`bad ~ "*"`, true}, {`sym ~ "foo+*"`, true},
		{`word == "te"`, true}, {`word ~ "t*"`, true}, {`words == "one"`, true}, {`words == "two"`, false},
		{`comm ~ "redis*"`, true}, {`COMM == "redis-server"`, true}, {"common_pid == 4711", true}, {"CPU == 3", true}, {"cpu < 3", false},
		{"cpu & CPUS{0,2-4}", true}, {"cpu & CPUS{0-2}", false}, {"cpu == CPUS{3}", true}, {"cpu & CPUS{3}", true}, {"cpu == CPUS{3,4}", false}, {"cpu != CPUS{3,4}", true}, {"cpu & CPUS{all}", true},
		{"cpu != CPUS{3}", false}, {"small & CPUS{199-201}", true}, {"int & CPUS{0-4}", false}, {"int != CPUS{0-4}", false},
		{"at.function == foo", true}, {"at.function != foo", false}, {"ptr.function == foo", false}, {"ptr.function != foo", true}, {"(at.function == f(int))", true},
		{"int == -5 && small == 200", true}, {"int == -5 && small == 1", false}, {"int == 1 || small == 200", true}, {"int==1||small==1", false},
		{"int == -5 || int == 1 && small == 1", true}, {"(int == -5 || int == 1) && small == 1", false}, {"small == 1 && int == 1 || int == -5", true},
		{"!int == -5", false}, {"!(int == 1)", true}, {"!(int == -5 && small == 1)", true}, {"!(int == 1 || small == 200)", false}, {"!!int == -5", true},
		{"! ( ! int == -5 || small == 1 )", true}, {"((((int == -5))))", true}, {" \tint == -5 \n", true}, {`path == "/etc/passwd" && !(comm == "a" || comm == "b")`, true},
		{`path == "a && b || (" || int == -5`, true},
	} {
		f, err := testParser.Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := f.Match(testValues); got != c.want {
			t.Errorf("%s: %v", c.text, got)
		}
		if got := f.String(); got != strings.TrimRight(c.text, " \n") {
			t.Errorf("%q is %q", c.text, got)
		}
	}
}

// A caret is in front of the column of the error.
func TestNumbersHaveUnitsWhereThereAreExpressions(t *testing.T) {
	exprs := testParser
	exprs.Exprs = true
	exprs.Fields = append([]fetch.Field{{Name: "duration_ns", Type: fetch.Type{Name: "s64", Kind: fetch.Signed, Size: 8}}}, testFields...)
	values := append([]fetch.Value{number(1_500_000)}, testValues...)
	for text, want := range map[string]bool{
		"duration == 1.5ms": true, "duration_ns == 1500us": true, "duration < 1s": true, "duration > 0.001s": true, "duration != 1500000ns": false, "duration > -1s": true,
		"ptr > 16G && ptr == 134217728M": false, "int > -1K": true, "small == 0.1953125K": true,
	} {
		f, err := exprs.Parse(text)
		if err != nil || f.Match(values) != want {
			t.Errorf("%s: %v, not %t", text, err, want)
		}
		if _, err := testParser.Parse(text); err == nil {
			t.Errorf("%s is understood where names are the kernel's", text)
		}
	}
	for _, text := range []string{"duration > 0.1ns", "duration > 5m", "duration > 1.5", "duration > 1e3s", "duration > 0x5K", "duration > 5 ms", "duration > ms", "small > -1K", "duration > 99999999999s", "duration > 1..5s", "duration > --5s"} {
		if _, err := exprs.Parse(text); err == nil {
			t.Errorf("%s is understood", text)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, id string }{
		// tracing-error-log.tc and trigger-filter.tc of the kernel's own tests
		{"((sig >= 10 && sig < 15) || dsigx ^== 17) && comm != 'bash'", "FIELD_NOT_FOUND"},
		{"common_pid =^ 0", "INVALID_OP"}, {"common_pid == b^", "INVALID_VALUE"}, {"common_pid == c^hild_pid", "INVALID_VALUE"}, {"a^", "FIELD_NOT_FOUND"}, {"common_pid^", "INVALID_OP"},
		{"a ^== 1", "FIELD_NOT_FOUND"}, {"int == 1 && foo ^== 2", "FIELD_NOT_FOUND"},
		{"int ?^?", "INVALID_OP"}, {"int =^ 3", "INVALID_OP"}, {"int <^", "INVALID_VALUE"}, {"int && 1", ""},
		{"int == 1 ^)", "TOO_MANY_CLOSE"}, {"^)", "TOO_MANY_CLOSE"}, {"^((int == 1)", "TOO_MANY_OPEN"}, {"^(int == 1 && (small == 2)", "TOO_MANY_OPEN"}, {"(int == 1 && ^(small == 2", "TOO_MANY_OPEN"},
		{"path == ^\"abc", "MISSING_QUOTE"}, {"path == 'a' || path == ^'b\"", "MISSING_QUOTE"},
		{"int == 1 ^small == 2", "TOO_MANY_PREDS"}, {"int == 1 ^& small == 2", "TOO_MANY_PREDS"}, {"int == 1^=", "TOO_MANY_PREDS"}, {"(int == 1) ^(small == 2)", "TOO_MANY_PREDS"}, {"(int == 1 ^small == 2)", "TOO_MANY_PREDS"},
		{"path == 1^", ""}, {"path == 1", "EXPECT_STRING"}, {"int == 'a'", "EXPECT_DIGIT"}, {"path < 'a'", "ILLEGAL_FIELD_OP"}, {"path & 'a'", "ILLEGAL_FIELD_OP"}, {"int ~ 1", "ILLEGAL_FIELD_OP"},
		{"bytes == 1", "ILLEGAL_FIELD_OP"}, {"word == 1", "EXPECT_STRING"},
		{"int == 1x", "ILLEGAL_INTVAL"}, {"small == -1", "ILLEGAL_INTVAL"}, {"int == 0x", "ILLEGAL_INTVAL"}, {"int == -", "ILLEGAL_INTVAL"}, {"int == 08", "ILLEGAL_INTVAL"}, {"int == 0b1", "ILLEGAL_INTVAL"},
		{"ptr == 18446744073709551616", "ILLEGAL_INTVAL"}, {"int == 9223372036854775808", "ILLEGAL_INTVAL"}, {"ptr == 0x0000000000000000000000001", "OPERAND_TOO_LONG"},
		{"path == '" + strings.Repeat("x", 256) + "'", "OPERAND_TOO_LONG"}, {strings.Repeat(" ", 9000) + "int == 1", "OPERAND_TOO_LONG"}, {strings.Repeat("(", 1<<20), "OPERAND_TOO_LONG"},
		{"^", "NO_FILTER"}, {"!^", "NO_FILTER"}, {"(^)", "INVALID_FILTER"}, {"int == 1 &&^", "INVALID_FILTER"}, {"int == 1 || !^", "INVALID_FILTER"}, {"^&& int == 1", "INVALID_FILTER"}, {"^!= 1", ""}, {"int == 1 && ^\x00", "INVALID_FILTER"},
		{"cpu & CPUS", "MISSING_BRACE_OPEN"}, {"cpu & CPUS{1", "MISSING_BRACE_CLOSE"}, {"cpu & CPUS{}", "INVALID_CPULIST"}, {"cpu & CPUS{a}", "INVALID_CPULIST"}, {"cpu & CPUS{3-1}", "INVALID_CPULIST"}, {"cpu & CPUS{9999}", "INVALID_CPULIST"},
		{"cpu < CPUS{1}", "ILLEGAL_FIELD_OP"}, {"path == CPUS{1}", "ILLEGAL_FIELD_OP"},
		{"at.function == bar", "NO_FUNCTION"}, {"at.function < foo", "INVALID_OP"}, {"int.function == foo", "ILLEGAL_FIELD_OP"}, {"path.function == foo", "ILLEGAL_FIELD_OP"},
	} {
		text := strings.Replace(c.text, "^", "", 1)
		_, err := testParser.Parse(text)
		var e *caret.Error
		if !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%.60s: %v", text, err)
			continue
		}
		if c.id != "" && e.ID != c.id || e.Text == "" {
			t.Errorf("%.60s: %s, want %s", text, e.ID, c.id)
		}
		if text == c.text {
			continue
		}
		if got := e.Command[:e.Column] + "^" + e.Command[e.Column:]; got != c.text {
			t.Errorf("caret: %s, want %s", got, c.text)
		}
	}
}

func TestWhatTheFileShows(t *testing.T) {
	_, err := Parse("common_pid == 1 && dsigx == 17\n", testFields)
	var e *caret.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := "common_pid == 1 && dsigx == 17\n                         ^\nparse_error: Field not found\n"
	if got := Shown(e); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if e.System != "event filter parse error" {
		t.Errorf("system %q", e.System)
	}
}

func TestClears(t *testing.T) {
	for text, want := range map[string]bool{"0": true, "0\n": true, " 0 ": true, "00": false, "": false, "0 == 0": false} {
		if Clears(text) != want {
			t.Errorf("%q", text)
		}
	}
}

func TestFields(t *testing.T) {
	f, err := Parse("int == 1 || comm == 'a' && int == 2", testFields)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Fields(); len(got) != 2 || got[0] != 1 || got[1] != 4 {
		t.Errorf("%v", got)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"a*b*c", "aXXbYYc", true}, {"a*b*c", "aXXbYY", false}, {"*a*", "bab", true}, {"**", "x", true},
		{"?", "", false}, {"?", "x", true}, {"[abc]", "b", true}, {"[a-c]x", "bx", true}, {"[!a-c]", "b", false}, {"[!a-c]", "d", true},
		{"[]]", "]", true}, {"[!]]", "a", true}, {"[a-]", "-", true}, {"[abc", "[abc", true}, {"[", "[", true}, {"[]", "[]", true}, {"[!", "[!", true},
		{`\*`, "*", true}, {`\*`, "a", false}, {`a\`, `a\`, true}, {"*.c", "x.c.c", true}, {"a*a*a*a*a*b", strings.Repeat("a", 200), false},
		{"x[0-9]*", "x7yz", true}, {"1*", "123", true},
	} {
		if got := matchGlob(c.pattern, c.text); got != c.want {
			t.Errorf("%q %q: %v", c.pattern, c.text, got)
		}
	}
}

package filter

import (
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

var sumFields = func() (fields []fetch.Field) {
	for _, f := range []struct {
		name string
		typ  fetch.Type
	}{
		{"c", fetch.Type{Kind: fetch.Signed, Size: 1}}, {"uc", fetch.Type{Kind: fetch.Unsigned, Size: 1}}, {"i", fetch.Type{Kind: fetch.Signed, Size: 4}}, {"u", fetch.Type{Kind: fetch.Unsigned, Size: 4}},
		{"l", fetch.Type{Kind: fetch.Signed, Size: 8}}, {"ul", fetch.Type{Kind: fetch.Unsigned, Size: 8}}, {"b3", fetch.Type{Kind: fetch.BitField, Size: 1, Width: 3}}, {"p", fetch.Type{Kind: fetch.Hex, Size: 8}},
		{"q", fetch.Type{Kind: fetch.Hex, Size: 8}}, {"f", fetch.Type{Kind: fetch.Float, Size: 4}}, {"d", fetch.Type{Kind: fetch.Float, Size: 8}}, {"s", fetch.Type{Kind: fetch.String}}, {"s2", fetch.Type{Kind: fetch.String}}, {"cut", fetch.Type{Kind: fetch.String}}, {"cut2", fetch.Type{Kind: fetch.String}},
		{"none", fetch.Type{Kind: fetch.Signed, Size: 4}}, {"unread", fetch.Type{Kind: fetch.Signed, Size: 4}}, {"unreadf", fetch.Type{Kind: fetch.Float, Size: 8}}, {"any", fetch.Type{Kind: fetch.Signed, Size: 8}}, {"any2", fetch.Type{Kind: fetch.Signed, Size: 8}}, {"$arg1", fetch.Type{Kind: fetch.Hex, Size: 8}},
	} {
		fields = append(fields, fetch.Field{Name: f.name, Type: f.typ, IsDynamic: strings.HasPrefix(f.name, "any")})
	}
	return fields
}()

var sumValues = []fetch.Value{
	{U: ^uint64(0)}, {U: 255}, {U: ^uint64(4)}, {U: 5}, {U: 1 << 40}, {U: 1 << 63}, {U: 7}, {U: 0x1000}, {U: 0x2000}, {U: 0x3f800000}, {U: 0x3ff8000000000000}, {S: "x"}, {S: "x"}, {S: "xyz", IsCut: true}, {S: "xy", IsCut: true}, {Absent: true, Fault: true}, {Fault: true}, {Fault: true}, {U: 5}, {U: 5}, {U: 3},
}

// What each language makes of some sums. Values: c -1, uc 255, i -5, u 5, l 1<<40, ul 1<<63, b3 7, p 0x1000, q 0x2000, f 1, d 1.5, $arg1 3.
func TestSumsFollowTheLanguage(t *testing.T) {
	for text, want := range map[string][3]string{ // C, Go, Rust: whether it holds, or the error
		"c < uc": {"yes", "yes", "yes"}, "i < u": {"no", "yes", "yes"}, "i > u": {"yes", "no", "no"}, "c < ul": {"no", "yes", "yes"}, "u < l": {"yes", "yes", "yes"}, "p < q": {"yes", "yes", "yes"}, "p == i": {"TYPES_DIFFER", "TYPES_DIFFER", "TYPES_DIFFER"},
		"uc + 1 == 256": {"yes", "no", "no"}, "uc + uc == 510": {"yes", "no", "no"}, "uc + uc == 254": {"no", "yes", "no"}, "u - 6 > 0": {"yes", "yes", "no"}, "i * 2 == -10": {"yes", "yes", "yes"}, "i / 2 == -2": {"yes", "yes", "yes"}, "i % 3 == -2": {"yes", "yes", "yes"},
		"i >> 1 == -3": {"yes", "yes", "yes"}, "i / (u - 5) == 0": {"no", "TYPES_DIFFER", "TYPES_DIFFER"}, "i / (i + 5) != 0": {"no", "no", "no"}, "u << 32 == 0": {"no", "yes", "no"}, "u << 31 == 2147483648": {"yes", "yes", "yes"},
		"(u & 4) == 4": {"yes", "yes", "yes"}, "u & 4 == 4": {"NEEDS_BRACES", "yes", "yes"}, "u & i": {"yes", "TYPES_DIFFER", "TYPES_DIFFER"}, "u + i == 0": {"yes", "TYPES_DIFFER", "TYPES_DIFFER"}, "u ^ u": {"INVALID_OP", "INVALID_OP", "INVALID_OP"},
		"l * l == 0": {"no", "yes", "no"}, "ul + ul == 0": {"yes", "yes", "no"}, "b3 - 8 < 0": {"yes", "ILLEGAL", "ILLEGAL"}, "u + 1 * 2 == 7": {"yes", "yes", "yes"}, "(u + 1) * 2 == 12": {"yes", "yes", "yes"}, "1 + u << 1 == 0": {"NEEDS_BRACES", "NEEDS_BRACES", "NEEDS_BRACES"},
		"none < u": {"no", "no", "no"}, "none + 1 != 0": {"no", "no", "no"}, "f < d": {"yes", "TYPES_DIFFER", "TYPES_DIFFER"}, "u < d": {"no", "TYPES_DIFFER", "TYPES_DIFFER"}, "f + 1 == d": {"ILLEGAL", "ILLEGAL", "ILLEGAL"}, "s == s2": {"yes", "yes", "yes"}, "s < s2": {"ILLEGAL", "ILLEGAL", "ILLEGAL"},
		"d > u + 1": {"ILLEGAL", "ILLEGAL", "ILLEGAL"}, "d == 1 + 1": {"ILLEGAL", "ILLEGAL", "ILLEGAL"}, "i + 1 < d": {"ILLEGAL", "ILLEGAL", "ILLEGAL"}, "u + 1 == p": {"ILLEGAL", "ILLEGAL", "ILLEGAL"},
		"unread + 1 == 1": {"no", "no", "no"}, "unread == i": {"no", "no", "no"}, "!(unread == i)": {"no", "no", "no"}, "unreadf < d": {"no", "no", "no"}, "!(unreadf < d)": {"no", "no", "no"}, "unread == 0": {"yes", "yes", "yes"},
		"!(none == 5)": {"no", "no", "no"}, "!(none == 5 && u == 5)": {"no", "no", "no"}, "!(none == 5 && u == 4)": {"yes", "yes", "yes"}, "none == 5 || u == 5": {"yes", "yes", "yes"}, "!(none == 5 || u == 5)": {"no", "no", "no"}, "i / (i + 5) == 0 || !(i / (i + 5) == 0)": {"no", "no", "no"},
		"(i & 0xffffffff) == -5": {"yes", "ILLEGAL", "ILLEGAL"}, "i - 0xffffffff < 0": {"no", "ILLEGAL", "ILLEGAL"}, "i - 4294967295 < 0": {"yes", "ILLEGAL", "ILLEGAL"}, "cut == s": {"no", "no", "no"}, "cut != s": {"yes", "yes", "yes"}, "cut == cut2": {"no", "no", "no"}, "cut != cut2": {"no", "no", "no"}, "cut == cut": {"no", "no", "no"}, `cut != "xyzz"`: {"no", "no", "no"}, `cut != "xy"`: {"yes", "yes", "yes"},
		`cut ~ "xy*"`: {"yes", "yes", "yes"}, `cut ~ "*a"`: {"no", "no", "no"}, `!(cut ~ "*a")`: {"no", "no", "no"}, `!(cut ~ "a*")`: {"yes", "yes", "yes"}, `!(cut ~ "xyzz*")`: {"no", "no", "no"},
		"any == 5": {"yes", "yes", "yes"}, "any == u": {"yes", "yes", "yes"}, "any == any2": {"TYPE_UNKNOWN", "TYPE_UNKNOWN", "TYPE_UNKNOWN"}, "any + 1 == 6": {"TYPE_UNKNOWN", "TYPE_UNKNOWN", "TYPE_UNKNOWN"}, "u == any - 1": {"TYPE_UNKNOWN", "TYPE_UNKNOWN", "TYPE_UNKNOWN"},
		"(u) == 5": {"yes", "yes", "yes"}, "u == (5)": {"yes", "yes", "yes"}, "(u) & 4": {"yes", "yes", "yes"}, "(u) == (4)": {"no", "no", "no"},
		"p + 1 == q": {"ILLEGAL", "ILLEGAL", "ILLEGAL"}, "$arg1 + 1 == 4": {"yes", "yes", "yes"}, "nobody + 1 == 2": {"FIELD_NOT_FOUND", "FIELD_NOT_FOUND", "FIELD_NOT_FOUND"}, "5 == u": {"yes", "yes", "yes"}, "u == 5 && i < l": {"yes", "yes", "yes"},
		"!(u == u)": {"no", "no", "no"}, "((u) < (l)) && (u + 1 == 6 || u == 1)": {"yes", "yes", "yes"}, "u - 4K < 0": {"no", "no", "no"}, "l - 4K == 1099511623680": {"yes", "yes", "yes"},
	} {
		for i, rules := range []Rules{CRules, GoRules, RustRules} {
			p := Parser{Fields: sumFields, Exprs: true, Rules: func() Rules { return rules }}
			got := "no"
			f, err := p.Parse(text)
			var fault *caret.Error
			switch {
			case errors.As(err, &fault):
				got = fault.ID
			case err != nil:
				t.Error(err)
			case f.Match(sumValues):
				got = "yes"
			}
			if !strings.HasPrefix(got, want[i]) && !(want[i] == "ILLEGAL" && got == "TYPES_DIFFER") {
				t.Errorf("%s by rules %d: %s, not %s", text, rules, got, want[i])
			}
		}
	}
}

package escape_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/gokprobe/gokprobe/internal/escape"
)

func TestWhatMayNotBePrintedIsEscaped(t *testing.T) {
	for _, tt := range []struct{ in, line, json string }{
		{"plain ~ Grüße 中文 €", "plain ~ Grüße 中文 €", `"plain ~ Grüße 中文 €"`},
		{"\x1b[31m\a\x7f", `\x1b[31m\a\x7f`, `"\u001b[31m\u0007\u007f"`},
		{"a\nb\tc\rd", `a\nb\tc\rd`, `"a\nb\tc\rd"`},
		{"\u0085\u009b", `\u0085\u009b`, `"\u0085\u009b"`},
		{"x\u202ey\u2066z\u200f\u061c", `x\u202ey\u2066z\u200f\u061c`, `"x\u202ey\u2066z\u200f\u061c"`},
		{"\u200b\ufeff\u00ad\u2028\u2029\u00a0", `\u200b\ufeff\u00ad\u2028\u2029\u00a0`, `"\u200b\ufeff\u00ad\u2028\u2029\u00a0"`},
		{"\xff\xc3", `\xff\xc3`, `"\ufffd\ufffd"`},
		{"\u034f\ufe0f\u3164\U000e0100", `\u034f\ufe0f\u3164\U000e0100`, `"\u034f\ufe0f\u3164\udb40\udd00"`},
		{`back\slash "q"`, `back\slash "q"`, `"back\\slash \"q\""`},
	} {
		if got := escape.Line(tt.in); got != tt.line {
			t.Errorf("%q is %s", tt.in, got)
		}
		got := string(escape.AppendJSON(nil, tt.in))
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || got != tt.json || back != strings.ToValidUTF8(tt.in, "\ufffd") && !strings.Contains(tt.in, "\xff") {
			t.Errorf("%q in JSON is %s: %v", tt.in, got, err)
		}
	}
	if got := escape.Text("a\n\tb\x1b\r"); got != "a\n\tb\\x1b\\r" {
		t.Errorf("%q", got)
	}
}

// TestNoRuneOfItsKindsPasses goes through all of Unicode.
func TestNoRuneOfItsKindsPasses(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue // no string holds one
		}
		bad := unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Zs)
		if got := escape.Line(string(r)); bad && got == string(r) || r > ' ' && r < 0x7f && got != string(r) {
			t.Fatalf("%U is %q", r, got)
		}
	}
}

// FuzzClean: what comes out can be printed, JSON stays the same data, and writes may be cut anywhere.
func FuzzClean(f *testing.F) {
	f.Add([]byte("a\x1b\u202e\xff\xe2\x80"), 3)
	f.Add([]byte(`a\x1b\\"\`), 3)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		s := string(p)
		for _, r := range escape.Line(s) {
			if !escape.Printable(r) {
				t.Fatalf("%q gives %U", s, r)
			}
		}
		name := string(escape.AppendName(nil, s))
		if back, err := strconv.Unquote(`"` + strings.ReplaceAll(name, `"`, `\"`) + `"`); err != nil || back != s {
			t.Fatalf("%q is %s, and then %q: %v", s, name, back, err)
		}
		j, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var a, b string
		if json.Unmarshal(j, &a) != nil || json.Unmarshal(escape.JSON(j), &b) != nil || a != b {
			t.Fatalf("%q is %q in JSON", a, b)
		}
		if json.Unmarshal(escape.AppendJSON(nil, s), &b) != nil || a != b {
			t.Fatalf("%q is %q as a JSON string", a, b)
		}
		var out bytes.Buffer
		w := escape.Writer{W: &out}
		cut = min(max(cut, 0), len(p))
		_, _ = w.Write(p[:cut])
		_, _ = w.Write(p[cut:])
		_ = w.Flush()
		if out.String() != escape.Text(s) {
			t.Fatalf("%q, cut at %d, is %s", s, cut, strconv.Quote(out.String()))
		}
	})
}

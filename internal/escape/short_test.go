package escape

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsLongIsCutInASentence(t *testing.T) {
	long := strings.Repeat("a", mostBegin) + strings.Repeat("b", 5000) + strings.Repeat("c", mostEnd)
	cut := strings.Repeat("a", mostBegin) + "…" + strings.Repeat("c", mostEnd)
	for _, c := range []struct{ got, want string }{
		{Short(""), ""},
		{Short("foo"), "foo"},
		{Short(long), cut},
		{Short(long[:mostBegin+mostEnd]), long[:mostBegin+mostEnd]},
		{Quote("a\x1bb"), `"a\x1bb"`},
		{Quote(long), `"` + cut + `"`},
		{Spec(" \t"), "an empty SPEC"},
		{Spec("libc.so.6:read"), "libc.so.6:read"},
		{Spec(long), cut},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for lead := range 4 {
		if s := Short(strings.Repeat("x", lead) + strings.Repeat("…", 1000) + strings.Repeat("x", lead)); !utf8.ValidString(s) {
			t.Errorf("a character is cut: %q", s)
		}
	}
	if s := Short(strings.Repeat("\x80", 1000)); len(s) > mostBegin+mostEnd+len("…") {
		t.Errorf("%d bytes are left of what is no text", len(s))
	}
}

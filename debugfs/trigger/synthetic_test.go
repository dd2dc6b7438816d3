package trigger

import (
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

func TestSyntheticEventsAreListed(t *testing.T) {
	for line, want := range map[string]string{
		"lat u64 lat":                                 "lat\tu64 lat",
		"lat u64 lat; pid_t pid;":                     "lat\tu64 lat; pid_t pid",
		"lat  unsigned  long a;char b[16];char[8] c ": "lat\tunsigned long a; char[16] b; char[8] c",
		"s:lat char c[]":                              "lat\tchar[] c",
		"s:synthetic/lat\tint i":                      "lat\tint i",
	} {
		s, err := ParseSynthetic(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if s.String() != want || s.Removes() {
			t.Errorf("%s is listed as %q", line, s)
		}
		if again, err := ParseSynthetic(want); err != nil || again.String() != want {
			t.Errorf("%q, written: %v, %v", want, again, err)
		}
	}
	for _, line := range []string{"!lat", "!lat u64 lat", "!s:lat u64 lat", "!s:synthetic/lat"} {
		if s, err := ParseSynthetic(line); err != nil || !s.Removes() || s.Name != "lat" {
			t.Errorf("%s: %v, %v", line, s, err)
		}
	}
}

// TestErrorsOfDefinitions has the kernel's selftest trigger-synthetic_event_syntax_errors.
func TestErrorsOfDefinitions(t *testing.T) {
	for line, id := range map[string]string{
		"myevent ^chr arg":                       "INVALID_TYPE",
		"myevent ^unsigned arg":                  "INCOMPLETE_TYPE",
		"myevent char ^str]; int v":              "BAD_NAME",
		"^mye-vent char str[]":                   "BAD_NAME",
		"myevent char ^st-r[]":                   "BAD_NAME",
		"myevent char str;^[]":                   "INVALID_FIELD",
		"myevent char str; ^int":                 "INVALID_FIELD",
		"myevent char ^str[; int v":              "INVALID_ARRAY_SPEC",
		"myevent char ^str[kdjdk]":               "INVALID_ARRAY_SPEC",
		"myevent char ^str[257]":                 "INVALID_ARRAY_SPEC",
		"^mye;vent char str[]":                   "INVALID_CMD",
		"^myevent ; char str[]":                  "INVALID_CMD",
		"^myevent; char str[]":                   "INVALID_CMD",
		"^myevent ;char str[]":                   "INVALID_CMD",
		"^; char str[]":                          "INVALID_CMD",
		"^;myevent char str[]":                   "INVALID_CMD",
		"^myevent":                               "INVALID_CMD",
		"^s:junk/myevent char str[":              "INVALID_DYN_CMD",
		"myevent ^u64 a[4]":                      "INVALID_TYPE",
		"myevent u64 a; ^s64 a":                  "INVALID_FIELD",
		"^" + strings.Repeat("n", 64) + " int i": "BAD_NAME",
	} {
		command := strings.Replace(line, "^", "", 1)
		_, err := ParseSynthetic(command)
		var e *caret.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if e.ID != id || e.Column != strings.IndexByte(line, '^') || e.System != "synthetic_events" || e.Text == "" {
			t.Errorf("%s: %s at %d, want %s", line, e.ID, e.Column, id)
		}
	}
}

func TestValuesOfSyntheticEvents(t *testing.T) {
	s, err := ParseSynthetic("lat u8 a; int b; char c[4]; char d[]; u64 e")
	if err != nil {
		t.Fatal(err)
	}
	held := s.Values([]fetch.Value{{U: 0x1ff}, {U: 0xffffffff}, {S: "abcdef"}, {S: "abcdef"}, {U: 1 << 63}})
	if got, want := string(s.Append(nil, held)), " a=255 b=-1 c=abc d=abcdef e=9223372036854775808"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseSynthetic(f *testing.F) {
	f.Add("lat u64 lat; char c[16]; unsigned int x;")
	f.Add("!s:synthetic/lat char[] c")
	f.Fuzz(func(t *testing.T, line string) {
		s, err := ParseSynthetic(line)
		if err != nil || s.Removes() {
			return
		}
		if again, err := ParseSynthetic(s.String()); err != nil || again.String() != s.String() {
			t.Fatalf("%q is listed as %q, and then %v, %v", line, s, again, err)
		}
		s.Append(nil, s.Values(make([]fetch.Value, len(s.Fields))))
	})
}

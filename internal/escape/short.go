package escape

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A sentence has so many bytes of a text that somebody has given, from its beginning and its end.
const (
	mostBegin = 200
	mostEnd   = 40
)

// Short is a text as a sentence may hold it: what is long is cut in the middle.
func Short(s string) string {
	if len(s) <= mostBegin+mostEnd {
		return s
	}
	begin, end := mostBegin, len(s)-mostEnd
	for begin > mostBegin-utf8.UTFMax && !utf8.RuneStart(s[begin]) {
		begin--
	}
	for end < len(s)-mostEnd+utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end++
	}
	return s[:begin] + "…" + s[end:]
}

// Quote is Short in quotes, with its escapes.
func Quote(s string) string { return strconv.Quote(Short(s)) }

// Spec is how a sentence calls a SPEC: as Short does, or that it is empty.
func Spec(s string) string {
	if strings.TrimSpace(s) == "" {
		return "an empty SPEC"
	}
	return Short(s)
}

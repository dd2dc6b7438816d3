package arg

import (
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/lex"
)

// readKey reads KEY] at the beginning of s, where KEY can be no index: a text in quotes, true, false, a number with a point or an exponent, or a larger one than indexes
// are. length is 0 where there is none.
func readKey(s string) (key any, length int) {
	end := strings.IndexByte(s, ']')
	if n := lex.Key("[" + s); n > 0 {
		end = n - 2
	}
	if end < 0 {
		return nil, 0
	}
	word := strings.TrimSpace(s[:end])
	if text, err := strconv.Unquote(word); err == nil && (word[0] == '"' || word[0] == '`') {
		return text, end + 1
	}
	if word == "true" || word == "false" {
		return word == "true", end + 1
	}
	if digits := strings.TrimPrefix(word, "-"); digits == "" || !lex.IsDigit(digits[0]) {
		return nil, 0
	}
	if n, ok := lex.Signed(word); ok {
		if isIndex(n) {
			return nil, 0
		}
		return n, end + 1
	}
	if n, ok := lex.Number(word, 0); ok {
		return n, end + 1
	}
	if f, err := strconv.ParseFloat(word, 64); err == nil && strings.ContainsAny(word, ".eE") && !strings.ContainsAny(word, "xX_") {
		return f, end + 1
	}
	return nil, 0
}

// isIndex tells that a number is small enough to be an index.
func isIndex(n int64) bool {
	const most = 1 << 31
	return n < most && n > -most
}

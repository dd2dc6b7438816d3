package lex

import (
	"strconv"
	"strings"
)

// Key is the length of ["TEXT"] at the beginning of s, as it stands behind a map; 0 if there is none. The text is written as Go writes it, so that it may have any
// character.
func Key(s string) int {
	if s == "" || s[0] != '[' {
		return 0
	}
	rest := strings.TrimLeft(s[1:], " ")
	if rest == "" || rest[0] != '"' && rest[0] != '`' {
		return 0
	}
	text, err := strconv.QuotedPrefix(rest)
	end := strings.TrimLeft(rest[len(text):], " ")
	if err != nil || end == "" || end[0] != ']' {
		return 0
	}
	return len(s) - len(end) + 1
}

// CutName splits NAME=REST at the first equals sign, unless that stands in a key.
func CutName(s string) (name, rest string, ok bool) {
	name, rest, ok = strings.Cut(s, "=")
	if !ok || strings.ContainsAny(name, "[\"`") {
		return "", s, false
	}
	return name, rest, true
}

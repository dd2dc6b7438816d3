package symbols

import "strings"

// isGlob reports whether s has a wildcard: *, ? or a bracket expression. The
// star of a Go receiver such as (*T), Go's [...], C++'s [] and its ABI tags such as
// [abi:cxx11] are plain text.
func isGlob(s string) bool {
	for i := range s {
		switch s[i] {
		case '?':
			return true
		case '*':
			if i == 0 || s[i-1] != '(' {
				return true
			}
		case '[':
			if bracket(s[i:]) > 0 {
				return true
			}
		}
	}
	return false
}

// bracket is the length of the bracket expression that starts s, 0 if the
// bracket is plain text.
func bracket(s string) int {
	if strings.HasPrefix(s, "[...]") || strings.HasPrefix(s, "[]") || strings.HasPrefix(s, "[abi:") {
		return 0
	}
	return strings.IndexByte(s, ']') + 1
}

// matchesGlob reports whether pattern matches the whole of s, as fnmatch(3) does without
// flags: a star also matches dots and slashes.
func matchesGlob(pattern, s string) bool {
	p, i := 0, 0
	starP, starI := -1, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' && (p == 0 || pattern[p-1] != '(') {
			starP, starI = p, i
			p++
			continue
		}
		if n, ok := matchOne(pattern[p:], s[i]); ok {
			p += n
			i++
			continue
		}
		if starP < 0 {
			return false
		}
		starI++
		p, i = starP+1, starI
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches one byte against the element that starts pattern, and
// returns the element's length.
func matchOne(pattern string, c byte) (n int, ok bool) {
	if pattern == "" {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		if n := bracket(pattern); n > 0 {
			return n, matchesBracket(pattern[1:n-1], c)
		}
	}
	return 1, pattern[0] == c
}

func matchesBracket(set string, c byte) bool {
	negate := set[0] == '!' || set[0] == '^'
	if negate {
		set = set[1:]
	}
	in := false
	for len(set) > 0 {
		if len(set) >= 3 && set[1] == '-' {
			in = in || set[0] <= c && c <= set[2]
			set = set[3:]
			continue
		}
		in = in || set[0] == c
		set = set[1:]
	}
	return in != negate
}

// globHint is the longest word of pattern: every match contains it, mangled or
// not. It is empty if nothing is certain.
func globHint(pattern string) string {
	best := ""
	words := strings.FieldsFunc(withoutBrackets(pattern), func(r rune) bool { return r >= 0x80 || !isWord(byte(r)) })
	for _, w := range words {
		if len(w) > len(best) {
			best = w
		}
	}
	for name := range stdAbbreviated {
		if strings.Contains(name, best) {
			return ""
		}
	}
	return best
}

// withoutBrackets replaces each bracket expression by a space.
func withoutBrackets(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '[' {
			if n := bracket(s[i:]); n > 0 {
				i += n - 1
				b.WriteByte(' ')
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

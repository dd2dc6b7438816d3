package symbols

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// isMangled reports whether a linkage name is a C++ (_Z) or Rust v0 (_R) one.
// Legacy Rust names are C++ names with a hash.
func isMangled(s string) bool {
	return len(s) > 2 && s[0] == '_' && (s[1] == 'Z' || s[1] == 'R')
}

// cloneSuffix matches the suffixes that gcc, LLVM and BOLT append to the name of a function's
// copy or split-off part.
var cloneSuffix = regexp.MustCompile(`(\.(cold|warm|isra|constprop|part|lto_priv|localalias|llvm)(\.[0-9]+)*)+$`)

// splitClone cuts a clone suffix off a linkage name.
func splitClone(linkage string) (base, suffix string) {
	if strings.IndexByte(linkage, '.') < 0 {
		return linkage, ""
	}
	if at := cloneSuffix.FindStringIndex(linkage); at != nil && at[0] > 0 {
		return linkage[:at[0]], linkage[at[0]:]
	}
	return linkage, ""
}

// isSplitOff reports whether suffix, which splitClone has cut off, marks a part of a function. Code
// jumps to such a part and does not call it.
func isSplitOff(suffix string) bool {
	return strings.Contains(suffix, ".cold") || strings.Contains(suffix, ".warm")
}

// Limits of demangling, in bytes: a short name can refer to its own parts again and again, and
// stand for a huge one.
const (
	longestMangled   = 16 << 10
	longestDemangled = 16 // as a power of two
)

var errLongName = errors.New("the name is too long")

func demangled(linkage string, options ...demangle.Option) (string, error) {
	if len(linkage) > longestMangled {
		return "", errLongName
	}
	return demangle.ToString(linkage, append(options, demangle.MaxLength(longestDemangled))...)
}

// demangleFull is the readable form with parameters; empty if linkage is not
// mangled.
func demangleFull(linkage string) string {
	if !isMangled(linkage) {
		return ""
	}
	base, suffix := splitClone(linkage)
	s, err := demangled(base)
	if err != nil {
		return ""
	}
	return s + suffix
}

// demangleShort is the readable form without the parameter list, or linkage
// itself if it is not mangled.
func demangleShort(linkage string) string {
	if !isMangled(linkage) {
		return linkage
	}
	base, suffix := splitClone(linkage)
	s, err := demangled(base, demangle.NoParams, demangle.NoEnclosingParams)
	if err != nil {
		return linkage
	}
	return s + suffix
}

// demangleBare is demangleShort without template arguments.
func demangleBare(linkage string) string {
	s, err := demangled(linkage, demangle.NoParams, demangle.NoTemplateParams)
	if err != nil {
		return ""
	}
	return s
}

// matchesMangled reports whether a user's name, squeezed, means linkage: in full,
// without parameters, or without template arguments too.
func matchesMangled(linkage, squeezed string) bool {
	return squeeze(demangleFull(linkage)) == squeezed ||
		squeeze(demangleShort(linkage)) == squeezed ||
		squeeze(demangleBare(linkage)) == squeezed
}

// squeeze removes spaces, so that "foo(int,char const *)" equals its usual
// spelling. A space between two words stays.
func squeeze(s string) string {
	if strings.IndexByte(s, ' ') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == ' ' && !(i > 0 && i+1 < len(s) && isWord(s[i-1]) && isWord(s[i+1])) {
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// mangledHint is a text that every mangled form of the readable name contains;
// empty if nothing is certain. It spares demangling all other symbols.
func mangledHint(name string) string {
	name = withoutParams(name)
	base := name[strings.LastIndex(name, "::")+1:]
	base = strings.TrimLeft(base, ":~")
	end := 0
	for end < len(base) && isWord(base[end]) {
		end++
	}
	word := base[:end]
	if word == "" || strings.HasPrefix(word, "operator") || stdAbbreviated[word] {
		return ""
	}
	return word
}

// isOperator tells of a readable name that it is an operator's of C++.
func isOperator(name string) bool {
	name = withoutParams(name)
	return strings.HasPrefix(name[strings.LastIndex(name, "::")+1:], ":operator") || strings.HasPrefix(name, "operator")
}

// stdAbbreviated are the class names that C++ mangling abbreviates (Itanium
// C++ ABI §5.1.8), which matters where a constructor is named like its class.
var stdAbbreviated = map[string]bool{
	"allocator": true, "basic_string": true, "string": true, "basic_istream": true,
	"istream": true, "basic_ostream": true, "ostream": true, "basic_iostream": true, "iostream": true,
}

// withoutParams cuts a trailing parameter list and template argument list off a
// readable name, so that "::" inside them is not taken for a qualifier.
func withoutParams(s string) string {
	for _, suffix := range []string{" const", " volatile", " &", " &&"} {
		s = strings.TrimSuffix(s, suffix)
	}
	if strings.HasSuffix(s, ")") && !strings.HasSuffix(s, "operator()") {
		s = cutGroup(s, '(', ')')
	}
	if strings.HasSuffix(s, ">") && !strings.Contains(s, "operator") {
		s = strings.TrimSuffix(cutGroup(s, '<', '>'), "::")
	}
	return s
}

// cutGroup removes the bracketed group that ends s.
func cutGroup(s string, open, end byte) string {
	depth := 0
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case end:
			depth++
		case open:
			if depth--; depth == 0 {
				return s[:i]
			}
		}
	}
	return s
}

// goGeneric is the form in which Go prints an instantiated name: the type
// arguments replaced by three dots (main.F[go.shape.int] is main.F[...]).
func goGeneric(linkage string) string {
	i := strings.IndexByte(linkage, '[')
	j := strings.LastIndexByte(linkage, ']')
	if i < 0 || j < i || !strings.Contains(linkage, ".") {
		return linkage
	}
	return linkage[:i] + "[...]" + linkage[j+1:]
}

// unescapeGo undoes the %xx escapes that the Go linker puts into the last
// element of an import path (cmd/internal/objabi.PathToPrefix).
func unescapeGo(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

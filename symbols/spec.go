package symbols

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// query is one way to read a probe specification.
type query struct {
	module string // base name; empty for all modules

	// Exactly one of these is set.
	name string
	file string // with line
	addr arch.Addr

	line    int
	offset  uint64
	isEvery bool // name+*: every instruction
}

// parseSpec lists the readings of a specification, the literal one first. A name
// may itself hold a colon, a plus sign, a star or brackets, so only the symbol
// tables can tell: the first reading that names something wins.
func parseSpec(spec string) ([]query, error) {
	s := strings.TrimSpace(spec)
	if s == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrBadSpec)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return nil, fmt.Errorf("%w: %s holds a control character", ErrBadSpec, escape.Quote(spec))
	}
	if a, ok := parseAddr(s); ok {
		return []query{{addr: a}}, nil
	}
	if isHexPrefixed(s) {
		return nil, fmt.Errorf("%w: %s is no 64-bit hexadecimal address", ErrBadSpec, escape.Quote(spec))
	}
	if q, ok := parseFileLine(s); ok {
		return []query{q}, nil
	}
	qs := withModules(query{}, s)
	if name, q, ok := cutOffset(s); ok {
		qs = append(qs, withModules(q, name)...)
	}
	for _, q := range qs {
		if q.name != "" || q.addr != 0 {
			return qs, nil
		}
	}
	return nil, fmt.Errorf("%w: %s has no name", ErrBadSpec, escape.Quote(spec))
}

// Library is the module part of a probe specification, if that may be the name of a shared
// library: it holds ".so". Otherwise it is empty.
func Library(spec string) string {
	if !strings.Contains(spec, ".so") {
		return ""
	}
	if m := modulePart(spec); strings.Contains(m, ".so") {
		return m
	}
	return ""
}

// NamesModule tells that a probe specification has a module part.
func NamesModule(spec string) bool { return modulePart(spec) != "" }

func modulePart(spec string) string {
	if m, _, ok := cutSimple(spec); ok {
		return m
	}
	queries, err := parseSpec(spec)
	if err != nil {
		return ""
	}
	return queries[len(queries)-1].module
}

// parseAddr reads 0x….
func parseAddr(s string) (arch.Addr, bool) {
	if !isHexPrefixed(s) {
		return 0, false
	}
	v, err := strconv.ParseUint(s[2:], 16, 64)
	return arch.Addr(v), err == nil && v != 0
}

func isHexPrefixed(s string) bool {
	return strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X")
}

// parseFileLine reads [module:]file:digits.
func parseFileLine(s string) (query, bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || s[i-1] == ':' {
		return query{}, false
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 31)
	if err != nil || n == 0 {
		return query{}, false
	}
	q := query{file: s[:i], line: int(n)}
	if m, f, ok := cutModule(q.file); ok {
		q.module, q.file = m, f
	}
	return q, true
}

// cutOffset splits name+12, name+0x12 or name+* at its last plus sign.
func cutOffset(s string) (name string, q query, ok bool) {
	i := strings.LastIndexByte(s, '+')
	if i <= 0 {
		return "", query{}, false
	}
	if s[i+1:] == "*" {
		return s[:i], query{isEvery: true}, true
	}
	n, err := strconv.ParseUint(s[i+1:], 0, 64)
	if err != nil || strings.ContainsRune(s[i+1:], '_') {
		return "", query{}, false
	}
	return s[:i], query{offset: n}, true
}

// withModules is q for s as a whole and for s as module:name.
func withModules(q query, s string) []query {
	whole := q
	whole.name = s
	m, name, ok := cutModule(s)
	if !ok {
		return []query{whole}
	}
	split := q
	split.module, split.name = m, name
	if a, ok := parseAddr(name); ok {
		split.name, split.addr = "", a
	}
	return []query{whole, split}
}

// cutModule splits at the first single colon. A double colon belongs to a C++
// or Rust name, and so does everything after a bracket.
func cutModule(s string) (module, name string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '[':
			if i > 0 { // [vdso] is a module, [...] belongs to a name
				return "", "", false
			}
		case '(', '<', ' ':
			return "", "", false
		case ':':
			if i+1 < len(s) && s[i+1] == ':' {
				return "", "", false
			}
			if i == 0 || i+1 == len(s) {
				return "", "", false
			}
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

package lex

import "strings"

// CutSymbol splits [MOD:]SYM[+|-OFFS]. ok is false if that is none.
func CutSymbol(s string) (module, symbol string, offset int64, ok bool) {
	module, symbol = CutModule(s)
	symbol, offset, ok = cutOffset(symbol)
	_, isNumber := Number(symbol, 0)
	return module, symbol, offset, ok && isSymbol(symbol) && (module != "" || !isNumber)
}

// cutOffset splits SYM+OFFS or SYM-OFFS at the last sign that a number follows. ok is false where the symbol
// would be empty or the number is too big.
func cutOffset(s string) (symbol string, offset int64, ok bool) {
	n := strings.LastIndexAny(s, "+-")
	if n < 0 || n+1 == len(s) || !IsDigit(s[n+1]) {
		return s, 0, s != "" && n+1 != len(s) || strings.Contains(s, "operator")
	}
	offset, ok = Signed(s[n:])
	return s[:n], offset, ok && n > 0
}

// CutModule splits MOD:SYM at the first colon that is not one of two.
func CutModule(s string) (module, symbol string) {
	for i := 0; i < len(s); i++ {
		if s[i] != ':' {
			continue
		}
		if i+1 < len(s) && s[i+1] == ':' {
			i++
			continue
		}
		if i > 0 {
			return s[:i], s[i+1:]
		}
	}
	return "", s
}

// isSymbol tells whether a program's symbol may be called s: signs are in C++'s operators only, and in what the
// Go compiler appends to a function's name (-fm, -range1).
func isSymbol(s string) bool {
	if strings.Contains(s, "operator") {
		return true
	}
	for i := range len(s) {
		if s[i] == '+' || s[i] == '-' && (i == 0 || i+1 == len(s) || !IsLetter(s[i+1])) {
			return false
		}
	}
	return true
}

// Namespace is the length of the :: that leads on from the name in front to another one; 0 if behind does not begin with one.
func Namespace(front, behind string) int {
	if len(behind) > 2 && front != "" && front[len(front)-1] != ':' && behind[:2] == "::" && IsLetter(behind[2]) {
		return 2
	}
	return 0
}

// TypeColon is the index of the first colon that is no part of :: and not in brackets, -1 if there is none.
func TypeColon(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		if i += Key(s[i:]); i == len(s) {
			break
		}
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		}
		if s[i] != ':' || depth > 0 {
			continue
		}
		n := Namespace(s[:i], s[i:])
		if n == 0 {
			return i
		}
		i += n - 1
	}
	return -1
}

// Cast is the length of (TYPE *) at the beginning of s, in front of something that it may be said of; 0 if there is none.
func Cast(s string) int {
	end := strings.IndexByte(s, ')')
	if end < 0 || s[0] != '(' || end+1 == len(s) {
		return 0
	}
	inside := strings.TrimSpace(s[1:end])
	name := strings.TrimRight(inside, "* ")
	next := strings.TrimLeft(s[end+1:], " ")
	if len(name) == len(strings.TrimRight(inside, " ")) || name == "" || !IsLetter(name[0]) || strings.ContainsAny(name, "()[]&-*") || next == "" ||
		!IsLetter(next[0]) && strings.IndexByte("(*&$", next[0]) < 0 {
		return 0
	}
	return end + 1
}

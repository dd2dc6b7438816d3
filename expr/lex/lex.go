// Package lex reads numbers and names as the kernel does in its commands, and symbols with the bytes that programs have in
// theirs.
//
// The package is pure: no system call, no build tag.
package lex

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/expr/caret"
)

// Number reads an unsigned number as kstrtoul does: 0x for hexadecimal, 0 for octal if base is 0, a plus sign
// is allowed.
func Number(s string, base int) (uint64, bool) {
	return digits(strings.TrimPrefix(s, "+"), base, 64)
}

// Signed reads a number with a sign as kstrtol does with base 0.
func Signed(s string) (int64, bool) {
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		v, ok := digits(rest, 0, 64)
		return -int64(v), ok && v <= 1<<63
	}
	v, ok := digits(strings.TrimPrefix(s, "+"), 0, 63)
	return int64(v), ok
}

func digits(s string, base, bits int) (uint64, bool) {
	if base == 0 {
		s, base = radix(s)
	}
	v, err := strconv.ParseUint(s, base, bits)
	return v, err == nil
}

// BadNumber is a fault of text that should be a number. If it is one that is too big its errno is ERANGE.
func BadNumber(id string, column int, text string) *caret.Fault {
	return &caret.Fault{ID: id, Column: column, Errno: tooBig(text)}
}

// tooBig is ERANGE if s is a number, but not of 64 bits with or without a sign.
func tooBig(s string) syscall.Errno {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	rest, base := radix(s)
	if _, err := strconv.ParseUint(rest, base, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return syscall.ERANGE
	}
	return 0
}

func radix(s string) (rest string, base int) {
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		return s[2:], 16
	case len(s) > 1 && s[0] == '0':
		return s, 8
	}
	return s, 10
}

// Leading reads the number that s begins with, and returns the rest.
func Leading(s string) (v uint64, rest string, ok bool) {
	n := 0
	for n < len(s) && isAlnum(s[n]) {
		n++
	}
	v, ok = digits(s[:n], 0, 64)
	return v, s[n:], ok
}

// IsDigit tells whether c is a decimal digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// IsLetter tells whether c may begin an identifier.
func IsLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' }

func isAlnum(c byte) bool { return IsDigit(c) || IsLetter(c) && c != '_' }

// IsIdentifier tells whether s follows the rules of C; more lists bytes that are allowed besides.
func IsIdentifier(s, more string) bool {
	for i := range len(s) {
		if !IsLetter(s[i]) && (i == 0 || !IsDigit(s[i])) && strings.IndexByte(more, s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

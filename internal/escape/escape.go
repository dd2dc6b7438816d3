// Package escape makes a target's data fit for a terminal, a log and a reader's eye.
// Names, strings, and errors of a target may hold anything: control characters that
// drive a terminal, characters that turn the direction of what follows, invisible ones,
// bytes that are no text.
//
// There is one rule, Printable, and everything that gokprobe prints goes by it: where
// text leaves the command, a Writer; in a session's files, where their content is made;
// in JSON, inside of its strings. Nothing is lost: a character that may not be printed
// is printed as an escape.
package escape

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable tells that r may be printed as it is: letters, marks, numbers, punctuation,
// symbols and the blank, as far as Unicode assigns them and they can be seen. Other
// characters are not: controls, formats (bidirectional overrides and isolates among
// them), line and paragraph separators, other blanks, surrogates, private use, and
// characters without a look of their own.
func Printable(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r < 0x7f
	}
	return strconv.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Append appends s. Characters that may not be printed are escaped as in Go source: \n,
// \x1b, \u202e, \U000e0001, and \xff for a byte that is no text.
func Append(b []byte, s string) []byte { return appendText(b, s, false) }

// AppendName appends one name or string that a target has chosen, as Append does, and a backslash as two: so no two names look the same, and
// strconv.Unquote gives it back (where quotes are escaped too). It is for who makes a text of such names; a text as a whole, which has been made so,
// goes through Append and Writer, which leave backslashes alone.
func AppendName(b []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return Append(b, s)
		}
		b = append(Append(b, s[:i]), '\\', '\\')
		s = s[i+1:]
	}
}

// Line is Append to a string.
func Line(s string) string { return string(Append(nil, s)) }

// AppendText is Append, but newlines and tabs stay.
func AppendText(b []byte, s string) []byte { return appendText(b, s, true) }

// Text is AppendText to a string.
func Text(s string) string { return string(AppendText(nil, s)) }

func appendText(b []byte, s string, lines bool) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7f || lines && (c == '\n' || c == '\t') {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if bad := r == utf8.RuneError && n == 1; !bad && Printable(r) {
			b = append(b, s[i:i+n]...)
		} else {
			b = appendEscape(b, s[i:i+n], r, bad)
		}
		i += n
	}
	return b
}

func appendEscape(b []byte, s string, r rune, bad bool) []byte {
	const hex = "0123456789abcdef"
	at := len(b)
	switch {
	case bad:
		return append(b, '\\', 'x', hex[s[0]>>4], hex[s[0]&15])
	case !strconv.IsPrint(r):
		b = strconv.AppendQuote(b, s)
	default: // printable to Go, but without a look
		b = strconv.AppendQuoteToASCII(b, s)
	}
	copy(b[at:], b[at+1:]) // without the quotes
	return b[:len(b)-2]
}

// AppendJSON appends s as a JSON string. A byte that is no text becomes U+FFFD, which JSON has no other way for.
func AppendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == utf8.RuneError && n == 1 || !Printable(r):
			b = appendU(b, r)
		default:
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return append(b, '"')
}

// JSON returns j, which is valid JSON, with characters escaped that may not be printed.
// The data is the same. (It can only stand within strings.)
func JSON(j []byte) []byte {
	b := make([]byte, 0, len(j))
	for i := 0; i < len(j); {
		r, n := utf8.DecodeRune(j[i:])
		switch {
		case r == '\n' || r == '\t' || r == '\r' || r != utf8.RuneError && Printable(r):
			b = append(b, j[i:i+n]...)
		default:
			b = appendU(b, r)
		}
		i += n
	}
	return b
}

// appendU appends r as JSON's escape, of one UTF-16 word or two.
func appendU(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	word := func(v rune) {
		b = append(b, '\\', 'u', hex[v>>12&15], hex[v>>8&15], hex[v>>4&15], hex[v&15])
	}
	if r >= 0x10000 {
		r -= 0x10000
		word(0xd800 + r>>10)
		r = 0xdc00 + r&0x3ff
	}
	word(r)
	return b
}

// Writer cleans the text that is written to W, as AppendText does. A character may be cut between two writes; Flush writes one that never
// comes whole. It is not safe for concurrent use.
type Writer struct {
	W    io.Writer
	rest []byte // the beginning of a character
}

// Write reports that it took all of p, or the error of W.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	w.rest = nil
	if cut := len(text) - unfinished(text); cut < len(text) {
		w.rest, text = append([]byte(nil), text[cut:]...), text[:cut]
	}
	if _, err := w.W.Write(AppendText(nil, string(text))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the rest of an incomplete character.
func (w *Writer) Flush() error {
	rest := w.rest
	w.rest = nil
	if len(rest) == 0 {
		return nil
	}
	_, err := w.W.Write(AppendText(nil, string(rest)))
	return err
}

// unfinished is how many bytes at the end of text may be the beginning of a character.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		c := text[len(text)-n]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

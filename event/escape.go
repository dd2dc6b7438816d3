package event

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendJSON appends s as a JSON string (RFC 8259 §7). Bytes that are not UTF-8
// become U+FFFD. Everything that is not printable is escaped, more than JSON
// asks for: the lines may be shown on a terminal.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' || c == 0x7f {
				b = append(b, s[from:i]...)
				b = appendJSONByte(b, c)
				from = i + 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			b = append(b, s[from:i]...)
			b = appendJSONRune(b, r)
			from = i + n
		}
		i += n
	}
	return append(append(b, s[from:]...), '"')
}

func appendJSONByte(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return appendU16(b, uint16(c))
}

func appendJSONRune(b []byte, r rune) []byte {
	if r >= 0x10000 {
		r -= 0x10000
		b = appendU16(b, uint16(0xd800+r>>10))
		return appendU16(b, uint16(0xdc00+r&0x3ff))
	}
	return appendU16(b, uint16(r))
}

func appendU16(b []byte, v uint16) []byte {
	return append(b, '\\', 'u', hexDigits[v>>12], hexDigits[v>>8&15], hexDigits[v>>4&15], hexDigits[v&15])
}

// appendSafe appends s as it is, but for what is not printable, which is escaped
// as in Go source.
func appendSafe(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7f {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if bad := r == utf8.RuneError && n == 1; !bad && strconv.IsPrint(r) {
			b = append(b, s[i:i+n]...)
		} else {
			at := len(b)
			b = strconv.AppendQuote(b, s[i:i+n])
			copy(b[at:], b[at+1:]) // without the quotes
			b = b[:len(b)-2]
		}
		i += n
	}
	return b
}

// appendHex appends v as 0x-prefixed hexadecimal.
func appendHex(b []byte, v uint64) []byte {
	return strconv.AppendUint(append(b, '0', 'x'), v, 16)
}

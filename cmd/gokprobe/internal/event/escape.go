package event

import (
	"strconv"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// appendJSON appends s as a JSON string that can be printed.
func appendJSON(b []byte, s string) []byte { return escape.AppendJSON(b, s) }

// appendSafe appends s and escapes characters that must not be printed.
func appendSafe(b []byte, s string) []byte { return escape.Append(b, s) }

// appendName appends a name that the target has chosen. Different names never look the same.
func appendName(b []byte, s string) []byte { return escape.AppendName(b, s) }

// appendHex appends v as 0x-prefixed hexadecimal.
func appendHex(b []byte, v uint64) []byte {
	return strconv.AppendUint(append(b, '0', 'x'), v, 16)
}

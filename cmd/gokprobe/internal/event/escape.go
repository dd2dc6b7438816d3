package event

import (
	"strconv"

	"github.com/gokprobe/gokprobe/internal/clean"
)

// appendJSON appends s as a JSON string that can be printed.
func appendJSON(b []byte, s string) []byte { return clean.AppendJSON(b, s) }

// appendSafe appends s and escapes characters that must not be printed.
func appendSafe(b []byte, s string) []byte { return clean.Append(b, s) }

// appendName appends a name that the target has chosen. Different names never look the same.
func appendName(b []byte, s string) []byte { return clean.AppendName(b, s) }

// appendHex appends v as 0x-prefixed hexadecimal.
func appendHex(b []byte, v uint64) []byte {
	return strconv.AppendUint(append(b, '0', 'x'), v, 16)
}

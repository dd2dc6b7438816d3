package arg

import (
	"math"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// MaxArray is how many elements an array may have (MAX_ARRAY_LEN).
const MaxArray = 64

// defaultType is the type of an argument without one: a word, hexadecimal.
const defaultType = "x64"

var types = map[string]fetch.Type{
	"u8": {Kind: fetch.Unsigned, Size: 1}, "u16": {Kind: fetch.Unsigned, Size: 2},
	"u32": {Kind: fetch.Unsigned, Size: 4}, "u64": {Kind: fetch.Unsigned, Size: 8},
	"s8": {Kind: fetch.Signed, Size: 1}, "s16": {Kind: fetch.Signed, Size: 2},
	"s32": {Kind: fetch.Signed, Size: 4}, "s64": {Kind: fetch.Signed, Size: 8},
	"x8": {Kind: fetch.Hex, Size: 1}, "x16": {Kind: fetch.Hex, Size: 2},
	"x32": {Kind: fetch.Hex, Size: 4}, "x64": {Kind: fetch.Hex, Size: 8},
	"char": {Kind: fetch.Char, Size: 1}, "string": {Kind: fetch.String}, "ustring": {Kind: fetch.UString},
	"f32": {Kind: fetch.Float, Size: 4}, "f64": {Kind: fetch.Float, Size: 8},
	"symbol": {Kind: fetch.SymbolOff, Size: 8}, "symstr": {Kind: fetch.SymStr, Size: 8},
}

// TypeOf is the type of a name without an array's brackets, such as "u32" or "b4@4/32".
func TypeOf(name string) (fetch.Type, bool) {
	if t, ok := types[name]; ok {
		t.Name = name
		return t, true
	}
	t, f := bitField(name)
	return t, f == ""
}

// parseType reads TYPE[N]; columns are counted from its first byte. A bit field that has a container but is none
// has a Width of 0: what is wrong with the source is told first.
func (p *parser) parseType(s string) (fetch.Type, *caret.Fault) {
	name, brackets, isArray := strings.Cut(s, "[")
	count := uint64(0)
	if isArray {
		digits, behind, closed := strings.Cut(brackets, "]")
		n, ok := lex.Number(digits, 0)
		switch column := len(name) + 1; {
		case !closed:
			return fetch.Type{}, caret.At("ARRAY_NO_CLOSE", len(s))
		case behind != "":
			return fetch.Type{}, caret.At("BAD_ARRAY_SUFFIX", len(s)-len(behind))
		case !ok || n == 0 || n > math.MaxUint32:
			return fetch.Type{}, caret.At("BAD_ARRAY_NUM", column)
		case n > MaxArray:
			return fetch.Type{}, caret.At("ARRAY_TOO_BIG", column)
		}
		count = n
	}
	t, ok := types[name]
	t.Name = name
	if !ok {
		var id string
		if t, id = bitField(name); id == "BAD_TYPE" {
			return t, caret.At(id, 0)
		}
	}
	t.Count = int(count)
	if p.s.Uprobe && (t.Kind == fetch.SymbolOff || t.Kind == fetch.SymStr) {
		return t, caret.At("BAD_TYPE", 0)
	}
	return t, nil
}

// bitField reads bW@O/C and sbW@O/C; id is the error, empty if there is none.
func bitField(name string) (t fetch.Type, id string) {
	kind := fetch.BitField
	unsigned, signed := strings.CutPrefix(name, "s")
	if signed {
		kind = fetch.SignedBits
	}
	bits, container, ok := strings.Cut(unsigned, "/")
	c, isNumber := lex.Number(container, 0)
	if !ok || bits[:min(1, len(bits))] != "b" || !isNumber || c != 8 && c != 16 && c != 32 && c != 64 {
		return t, "BAD_TYPE"
	}
	width, rest, ok := lex.Leading(bits[1:])
	if !ok || width == 0 || !strings.HasPrefix(rest, "@") {
		return fetch.Type{Name: name, Kind: kind}, "BAD_BITFIELD"
	}
	shift, rest, ok := lex.Leading(rest[1:])
	if !ok || rest != "" || width > c || shift > c-width {
		return fetch.Type{Name: name, Kind: kind}, "BAD_BITFIELD"
	}
	return fetch.Type{Name: name, Kind: kind, Size: int(c / 8), Width: int(width), Shift: int(shift)}, ""
}

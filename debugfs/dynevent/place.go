package dynevent

import (
	"math"
	"strings"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/lex"
)

// parsePlace reads [MOD:]SYM[+OFFS][%return] or ADDR[%return].
func (d *Definition) parsePlace(place string) *caret.Fault {
	symbol, isReturn := strings.CutSuffix(place, "%return")
	if isReturn {
		d.Kind = Return
	}
	if v, ok := lex.Number(symbol, 0); ok {
		d.Addr = v
		return nil
	}
	if n := badPercent(symbol); n >= 0 {
		return caret.At("BAD_ADDR_SUFFIX", n)
	}
	module, symbol, offset, ok := lex.CutSymbol(symbol)
	if !ok || offset < 0 || offset > math.MaxUint32 {
		return caret.At("BAD_PROBE_ADDR", 0)
	}
	d.Module, d.Symbol, d.Offset = module, symbol, uint64(offset)
	return nil
}

// badPercent returns the index of the first percent sign that is no escape of Go's
// linker, or -1. (%2e is a dot in an import path.)
func badPercent(s string) int {
	for i := range len(s) {
		if s[i] == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])) {
			return i
		}
	}
	return -1
}

func isHex(c byte) bool { return lex.IsDigit(c) || 'a' <= c && c <= 'f' }

// parseOffset reads OFFSET[%return][(REF)], which begins at a column of the place.
func (d *Definition) parseOffset(place string, column int) *caret.Fault {
	s := place[column:]
	if n := strings.IndexByte(s, '('); n >= 0 {
		if f := d.parseRef(s[n+1:], column+n+1); f != nil {
			return f
		}
		s = s[:n]
	}
	if n := strings.IndexByte(s, '%'); n >= 0 {
		if s[n:] != "%return" {
			return caret.At("BAD_ADDR_SUFFIX", column+n)
		}
		d.Kind = Return
		s = s[:n]
	}
	v, ok := lex.Number(s, 0)
	if !ok {
		return lex.BadNumber("BAD_UPROBE_OFFS", column, s)
	}
	d.FileOffset = v
	return nil
}

// parseRef reads REF), which begins at a column of the place.
func (d *Definition) parseRef(s string, column int) *caret.Fault {
	n := strings.IndexByte(s, ')')
	switch {
	case n < 0:
		return caret.At("REFCNT_OPEN_BRACE", column+len(s))
	case n+1 < len(s):
		return caret.At("BAD_REFCNT_SUFFIX", column+n+1)
	}
	v, ok := lex.Number(s[:n], 0)
	if !ok {
		return lex.BadNumber("BAD_REFCNT", column, s[:n])
	}
	d.Ref, d.HasRef = v, v != 0 // 0 is none, as in the kernel
	return nil
}

package dynevent

import (
	"math"
	"strings"
)

// parsePlace reads [MOD:]SYM[+OFFS][%return] or ADDR[%return].
func (d *Definition) parsePlace(place string) *fault {
	symbol, isReturn := strings.CutSuffix(place, "%return")
	if isReturn {
		d.Kind = Return
	}
	if v, ok := number(symbol, 0); ok {
		d.Addr = v
		return nil
	}
	if n := badPercent(symbol); n >= 0 {
		return bad("BAD_ADDR_SUFFIX", n)
	}
	module, symbol, offset, ok := cutSymbol(symbol)
	if !ok || offset < 0 || offset > math.MaxUint32 {
		return bad("BAD_PROBE_ADDR", 0)
	}
	d.Module, d.Symbol, d.Offset = module, symbol, uint64(offset)
	return nil
}

// badPercent is the index of the first percent sign that is no escape of Go's linker (%2e is a dot in an import
// path), or -1.
func badPercent(s string) int {
	for i := range len(s) {
		if s[i] == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])) {
			return i
		}
	}
	return -1
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

// cutSymbol splits [MOD:]SYM[+|-OFFS]. ok is false if that is none.
func cutSymbol(s string) (module, symbol string, offset int64, ok bool) {
	module, symbol = cutModule(s)
	symbol, offset, ok = cutOffset(symbol)
	_, isNumber := number(symbol, 0)
	return module, symbol, offset, ok && isSymbol(symbol) && (module != "" || !isNumber)
}

// cutOffset splits SYM+OFFS or SYM-OFFS at the last sign that a number follows. ok is false where the symbol
// would be empty or the number is too big.
func cutOffset(s string) (symbol string, offset int64, ok bool) {
	n := strings.LastIndexAny(s, "+-")
	if n < 0 || n+1 == len(s) || !isDigit(s[n+1]) {
		return s, 0, s != "" && n+1 != len(s) || strings.Contains(s, "operator")
	}
	offset, ok = signed(s[n:])
	return s[:n], offset, ok && n > 0
}

// cutModule splits MOD:SYM at the first colon that is not one of two.
func cutModule(s string) (module, symbol string) {
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
		if s[i] == '+' || s[i] == '-' && (i == 0 || i+1 == len(s) || !isLetter(s[i+1])) {
			return false
		}
	}
	return true
}

// parseOffset reads OFFSET[%return][(REF)], which begins at a column of the place.
func (d *Definition) parseOffset(place string, column int) *fault {
	s := place[column:]
	if n := strings.IndexByte(s, '('); n >= 0 {
		if f := d.parseRef(s[n+1:], column+n+1); f != nil {
			return f
		}
		s = s[:n]
	}
	if n := strings.IndexByte(s, '%'); n >= 0 {
		if s[n:] != "%return" {
			return bad("BAD_ADDR_SUFFIX", column+n)
		}
		d.Kind = Return
		s = s[:n]
	}
	v, ok := number(s, 0)
	if !ok {
		return badNumber("BAD_UPROBE_OFFS", column, s)
	}
	d.FileOffset = v
	return nil
}

// parseRef reads REF), which begins at a column of the place.
func (d *Definition) parseRef(s string, column int) *fault {
	n := strings.IndexByte(s, ')')
	switch {
	case n < 0:
		return bad("REFCNT_OPEN_BRACE", column+len(s))
	case n+1 < len(s):
		return bad("BAD_REFCNT_SUFFIX", column+n+1)
	}
	v, ok := number(s[:n], 0)
	if !ok {
		return badNumber("BAD_REFCNT", column, s[:n])
	}
	d.Ref, d.HasRef = v, v != 0 // 0 is none, as in the kernel
	return nil
}

package script

import (
	"fmt"
	"math/big"
	"math/bits"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Converting an integer to or from digits takes time that grows with the square of its length,
// and nothing can interrupt it. So the length of integers is bounded, wherever one is made, and
// conversions are charged for that square.

const (
	// maxBits is the most bits of an integer.
	maxBits = 1 << 16
	// maxDigits is the decimal digits of 2^maxBits.
	maxDigits = maxBits*30103/100000 + 1
	// maxLiteral is the most characters of an integer in digits of any base, with a sign and a prefix.
	maxLiteral = maxBits + 3
	// squarePerStep is how many words of an integer, times as many, are converted in a step.
	squarePerStep = 32
)

var errLargeInt = fmt.Errorf("the integer is too large: it may have at most %d bits", maxBits)

// bitLen is how long an integer is, without its sign.
func bitLen(i starlark.Int) uint64 {
	if n, small := i.Int64(); small {
		return uint64(bits.Len64(uint64(max(n, -n))))
	}
	return uint64(i.BigInt().BitLen())
}

// conversion is the steps that converting an integer of so many bits to or from digits takes.
func conversion(length uint64) uint64 {
	words := length / 64
	return words * words / squarePerStep
}

// checkOp tells that x op y may be too large an integer. Sums are not much longer than the
// longer of both, so it suffices that what is added has the right size.
func checkOp(op syntax.Token, x, y starlark.Value) error {
	j, ok := y.(starlark.Int)
	if !ok {
		return nil
	}
	i, both := x.(starlark.Int)
	most := bitLen(j)
	if both {
		most = max(most, bitLen(i))
	}
	switch {
	case op == syntax.PLUS || op == syntax.MINUS:
	case op == syntax.STAR && both:
		most = max(bitLen(i)+bitLen(j), 1) - 1
	case op == syntax.LTLT && both:
		n, _ := j.Uint64()
		most = bitLen(i) + min(n, maxBits) // the interpreter refuses large and negative n
	default:
		return nil
	}
	if most > maxBits {
		return errLargeInt
	}
	return nil
}

// toInt is Starlark's int.
func (s *Script) toInt() *starlark.Builtin {
	fn := starlark.Universe["int"].(*starlark.Builtin)
	return starlark.NewBuiltin("int", func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		all := args
		for _, kw := range kwargs {
			all = append(all[:len(all):len(all)], kw[1])
		}
		var text, perDigit uint64 = 0, 4 // of base 10 and 16
		for _, a := range all {
			if t, ok := starlark.AsString(a); ok {
				text = max(text, uint64(len(t)))
			} else if base, err := starlark.AsInt32(a); err == nil && base > 16 && base <= 36 {
				perDigit = uint64(bits.Len(uint(base - 1)))
			}
		}
		if text > maxLiteral {
			return nil, errLargeInt
		}
		if err := s.running.charge(text/textPerStep + conversion(text*perDigit)); err != nil {
			return nil, err
		}
		v, err := fn.CallInternal(thread, args, kwargs)
		if i, ok := v.(starlark.Int); ok && bitLen(i) > maxBits {
			return nil, errLargeInt
		}
		return v, err
	})
}

// decode guards json.decode: it charges for the numbers in the text, and bounds how deep it is nested.
func (s *Script) decode(fn *starlark.Builtin) *starlark.Builtin {
	return starlark.NewBuiltin(fn.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		all := args
		for _, kw := range kwargs {
			all = append(all[:len(all):len(all)], kw[1])
		}
		for _, a := range all {
			text, _ := starlark.AsString(a)
			cost, err := jsonCost(text)
			if err == nil {
				err = s.running.charge(cost)
			}
			if err != nil {
				return nil, err
			}
		}
		return fn.CallInternal(thread, args, kwargs)
	})
}

// jsonCost is the steps that converting the integers of a JSON text takes. The error is that one is
// too large, or the text nested too deep: decoding is recursive.
func jsonCost(text string) (cost uint64, err error) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '[' || c == '{':
			if depth++; depth > maxNesting {
				return 0, errNested
			}
		case c == ']' || c == '}':
			depth--
		case c >= '0' && c <= '9' || c == '-':
			begin, float := i+1, false
			for ; i+1 < len(text) && strings.IndexByte("0123456789.eE+-", text[i+1]) >= 0; i++ {
				float = float || text[i+1] < '0' || text[i+1] > '9'
			}
			digits := uint64(i - begin + 2) // or one less, after a minus
			if float {
				continue // takes no longer than other text
			}
			if digits > maxDigits {
				return 0, errLargeInt
			}
			cost += conversion(digits * 10 / 3)
		}
	}
	return cost, nil
}

// parse parses a file, whose integers may not be too large. Since it is the parser that
// converts them, a file with a long row of digits or letters is first looked at with those cut:
// if one of them is in an integer, that is still too large. (Others are in texts, or names.)
func parse(file string, src []byte) (*syntax.File, error) {
	for short := cut(src); ; short = src {
		f, err := dialect.Parse(file, short, 0)
		if err == nil {
			err = checkTree(f)
		}
		if err != nil {
			return nil, err
		}
		if len(short) == len(src) {
			return f, nil
		}
	}
}

// cut is src with at most maxLiteral of the digits and letters of ASCII in a row, and one more.
func cut(src []byte) []byte {
	short := make([]byte, 0, len(src))
	row := 0
	for _, c := range src {
		if row++; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			row = 0
		}
		if row <= maxLiteral+1 {
			short = append(short, c)
		}
	}
	return short
}

// checkTree tells of an integer in a file that is too large, and of an expression nested too deep: what comes after the parser takes the square of a chain's length,
// and can't be interrupted.
func checkTree(f *syntax.File) (err error) {
	depth := 0
	syntax.Walk(f, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return true
		}
		if depth++; depth > maxNesting && err == nil {
			begin, _ := n.Span()
			err = syntax.Error{Pos: begin, Msg: fmt.Sprintf("the expression is nested deeper than %d", maxNesting)}
		}
		if lit, ok := n.(*syntax.Literal); ok && lit.Token == syntax.INT {
			i, large := lit.Value.(*big.Int)
			if len(lit.Raw) > maxLiteral || large && i.BitLen() > maxBits {
				err = syntax.Error{Pos: lit.TokenPos, Msg: errLargeInt.Error()}
			}
		}
		if err != nil {
			depth-- // the walk does not say that it leaves what it does not enter
		}
		return err == nil
	})
	return err
}

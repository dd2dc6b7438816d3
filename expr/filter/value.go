package filter

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// parseNumber reads a number as the kernel's kstrtoull and kstrtoll do with base 0.
func parseNumber(text string, signed bool) (uint64, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	base := 10
	switch {
	case len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x':
		base, digits = 16, digits[2:]
	case len(digits) > 1 && digits[0] == '0':
		base, digits = 8, digits[1:]
	}
	switch {
	case negative && !signed:
		return 0, false
	case signed:
		if negative {
			digits = "-" + digits
		}
		n, err := strconv.ParseInt(digits, base, 64)
		return uint64(n), err == nil
	}
	n, err := strconv.ParseUint(digits, base, 64)
	return n, err == nil
}

// units are what a number may be in: times in nanoseconds, and powers of 1024.
var units = map[string]int64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

// parseUnits reads a decimal number with a unit behind it, 5ms or 1.5K, which must be a whole number in all.
func parseUnits(text string, signed bool) (uint64, bool) {
	end := strings.LastIndexAny(text, "0123456789") + 1
	unit, ok := units[text[end:]]
	number, isNumber := new(big.Rat).SetString(text[:end])
	digits := strings.TrimPrefix(text[:end], "-")
	isOctal := len(digits) > 1 && digits[0] == '0' && isDigit(digits[1])
	if !ok || !isNumber || isOctal || strings.Trim(digits, ".0123456789") != "" {
		return 0, false
	}
	number.Mul(number, new(big.Rat).SetInt64(unit))
	switch n := number.Num(); {
	case !number.IsInt():
		return 0, false
	case n.IsInt64() && (signed || n.Sign() >= 0):
		return uint64(n.Int64()), true
	case n.IsUint64() && !signed:
		return n.Uint64(), true
	}
	return 0, false
}

// size is the bytes of the field.
func (p *pred) size() int {
	if p.typ.Size == 0 {
		return 8
	}
	return p.typ.Size
}

// extend makes n a number of the field's type, as its values are.
func (p *pred) extend(n uint64) uint64 {
	if p.typ.IsBits() { // it may be narrower than a byte, and nothing is cut off
		return n
	}
	shift := 64 - 8*p.size()
	if p.typ.Kind == fetch.Signed {
		return uint64(int64(n<<shift) >> shift)
	}
	return n << shift >> shift
}

// function reads the name of a function, up to a blank or a bracket that was not opened in it.
func (s *parser) function(p *pred) error {
	switch {
	case p.isString() || p.size() != 8:
		return s.here("ILLEGAL_FIELD_OP")
	case p.op != equal && p.op != notEqual:
		return s.here("INVALID_OP")
	}
	name := s.functionName()
	if s.Function != nil {
		if start, end, ok := s.Function(name); ok && start < end {
			p.is, p.ranges = aFunction, []Span{{start, end - 1}}
			return nil
		}
	}
	return s.here("NO_FUNCTION")
}

// caller reads the name of a function in quotes, or a pattern of such.
func (s *parser) caller(p *pred, quote byte) error {
	if p.op != equal && p.op != notEqual {
		return s.here("ILLEGAL_FIELD_OP")
	}
	s.at++
	from := s.at
	name := s.while(func(c byte) bool { return c != quote })
	if s.Callers != nil {
		p.is, p.ranges = aFunction, s.Callers(name)
	}
	if len(p.ranges) == 0 {
		return s.fail("NO_FUNCTION", from)
	}
	s.at++
	return nil
}

// functionName reads a name that may have parameters in braces.
func (s *parser) functionName() string {
	depth := 0
	return s.while(func(c byte) bool {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth >= 0 && !isSpace(c)
	})
}

// maxCPUs is what the numbers of processors are below (the greatest NR_CPUS of x86-64).
const maxCPUs = 8192

// cpus reads CPUS{LIST}.
func (s *parser) cpus(p *pred) error {
	switch {
	case p.isString(), p.op != equal && p.op != notEqual && p.op != anyBit:
		return s.here("ILLEGAL_FIELD_OP")
	}
	s.accept("CPUS")
	if !s.accept("{") {
		s.at = min(s.at+1, len(s.text))
		return s.here("MISSING_BRACE_OPEN")
	}
	list := s.while(func(c byte) bool { return c != '}' })
	if s.peek() != '}' {
		return s.here("MISSING_BRACE_CLOSE")
	}
	ok := false
	if p.ranges, ok = parseCPUs(list); !ok {
		return s.here("INVALID_CPULIST")
	}
	s.at++
	p.is = cpus
	if r := p.ranges; len(r) == 1 && r[0].First == r[0].Last {
		p.is, p.n = aNumber, r[0].First
		if p.op == anyBit {
			p.op = equal
		}
	}
	return nil
}

// parseCPUs reads numbers and ranges with commas between them; all are all.
func parseCPUs(list string) (ranges []Span, ok bool) {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.Trim(part, space); part == "all" {
			part = "0-" + strconv.Itoa(maxCPUs-1)
		}
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err != nil || err2 != nil || first > last || last >= maxCPUs {
			return nil, false
		}
		ranges = append(ranges, Span{first, last})
	}
	return ranges, true
}

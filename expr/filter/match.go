package filter

import (
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// truth is whether a condition holds, in Kleene's logic: && is the least, || the greatest.
type truth int8

const (
	no      truth = -1
	unknown truth = 0
	yes     truth = 1
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// Reader finds the value of a field. It is asked for those that decide, in the order of the filter's text.
type Reader func(field int) fetch.Value

func (n *node) match(fields []fetch.Field, read Reader) (t truth) {
	switch {
	case n.pred != nil:
		t = n.pred.match(fields, read)
	case n.any:
		t = no
		for i := 0; i < len(n.list) && t != yes; i++ {
			t = max(t, n.list[i].match(fields, read))
		}
	default:
		t = yes
		for i := 0; i < len(n.list) && t != no; i++ {
			t = min(t, n.list[i].match(fields, read))
		}
	}
	if n.not {
		return -t
	}
	return t
}

func (p *pred) match(fields []fetch.Field, read Reader) truth {
	switch p.is {
	case aSum:
		return p.matchSum(read)
	case twoFloats:
		return p.matchFloats(fields, read)
	case twoTexts:
		return p.matchTexts(fields, read)
	}
	v := read(p.field)
	if v.Absent || p.is == aString && v.IsCut && p.minds && p.isOpen(v.S) {
		return unknown
	}
	return truthOf(p.meets(v))
}

// meets tells whether a value is as the operator says.
func (p *pred) meets(v fetch.Value) bool {
	switch p.is {
	case aString:
		return p.matchString(p.textOf(v))
	case aFunction:
		return p.within(v.U) == (p.op == equal)
	case aFloat:
		return p.compareFloat(p.typ.Float(v))
	case cpus: // several, so a number is never equal to them
		return v.U < maxCPUs && (p.op == notEqual || p.op == anyBit && p.within(v.U))
	}
	return p.compare(v.U)
}

func (p *pred) within(n uint64) bool {
	for _, r := range p.ranges {
		if r.First <= n && n <= r.Last {
			return true
		}
	}
	return false
}

// compare compares numbers of 64 bits.
func (p *pred) compare(n uint64) bool {
	below := n < p.n
	if p.typ.HasSign() {
		below = int64(n) < int64(p.n)
	}
	switch p.op {
	case equal:
		return n == p.n
	case notEqual:
		return n != p.n
	case less:
		return below
	case lessEqual:
		return below || n == p.n
	case greater:
		return !below && n != p.n
	case greaterEqual:
		return !below
	}
	return n&p.n != 0
}

// textOf is a value as a string.
func (p *pred) textOf(v fetch.Value) string {
	if p.typ.Kind == fetch.Char {
		var text []byte
		for _, e := range v.Elems {
			if e.U == 0 {
				break
			}
			text = append(text, byte(e.U))
		}
		return string(text)
	}
	if p.typ.Count > 0 {
		if len(v.Elems) == 0 {
			return ""
		}
		v = v.Elems[0]
	}
	return v.S
}

// isOpen tells of a text that is cut that what is behind decides whether it is as the operator says.
func (p *pred) isOpen(begin string) bool {
	if p.op != glob || !strings.ContainsAny(p.text, `*?[\`) {
		return strings.HasPrefix(p.text, begin)
	}
	fixed := p.text
	if n := strings.IndexAny(fixed, `*?[\`); n >= 0 {
		fixed = fixed[:n]
	}
	isAny := strings.HasSuffix(p.text, "*") && !strings.HasSuffix(p.text, `\*`)
	return (strings.HasPrefix(begin, fixed) || strings.HasPrefix(fixed, begin)) && !(isAny && matchGlob(p.text, begin))
}

func (p *pred) matchString(text string) bool {
	switch p.op {
	case equal:
		return text == p.text
	case notEqual:
		return text != p.text
	}
	return matchGlob(p.text, text) != p.not
}

// compareFloat compares as C does: of a NaN only != is true.
func (p *pred) compareFloat(x float64) bool {
	switch p.op {
	case equal:
		return x == p.float
	case notEqual:
		return x != p.float
	case less:
		return x < p.float
	case lessEqual:
		return x <= p.float
	case greater:
		return x > p.float
	}
	return x >= p.float
}

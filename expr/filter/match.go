package filter

import (
	"github.com/gokprobe/gokprobe/expr/fetch"
)

func (n *node) match(fields []fetch.Field, values []fetch.Value) bool {
	if n.pred != nil {
		return n.pred.match(fields, values) != n.not
	}
	for _, sub := range n.list {
		if sub.match(fields, values) == n.any {
			return n.any != n.not
		}
	}
	return n.any == n.not
}

func (p *pred) match(fields []fetch.Field, values []fetch.Value) bool {
	switch p.is {
	case aSum:
		return p.matchSum(values)
	case twoFloats:
		return p.matchFloats(fields, values)
	case twoTexts:
		return p.matchTexts(fields, values)
	}
	var v fetch.Value
	if p.field < len(values) {
		v = values[p.field]
	}
	if v.Absent {
		return false
	}
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

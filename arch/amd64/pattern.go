package amd64

// pattern selects instructions by the fields of their encoding. A zero mask
// matches everything.
type pattern struct {
	space  space
	lo, hi byte  // opcodes; hi 0 means lo alone
	pp     uint8 // ppXxx bits
	mod    uint8 // inMemory or inRegister
	reg    uint8 // bit n stands for /n
	rm     uint8 // bit n stands for ModRM.rm n
	w      uint8 // w0 or w1: REX.W, VEX.W, EVEX.W
	l      uint8 // l0, l1, l2: VEX.L, EVEX.L'L
}

const (
	inMemory = 1 << iota
	inRegister
)

const (
	w0 = 1 << iota
	w1
)

const (
	l0 = 1 << iota
	l1
	l2
)

// r is a mask for pattern.reg or pattern.rm.
func r(digits ...int) (mask uint8) {
	for _, d := range digits {
		mask |= 1 << d
	}
	return mask
}

func (p *pattern) last() byte { return max(p.lo, p.hi) }

func (p *pattern) matches(f *form) bool {
	if f.space != p.space || f.op < p.lo || f.op > p.last() {
		return false
	}
	where := uint8(inMemory)
	if f.register() {
		where = inRegister
	}
	w := uint8(w0)
	if f.rex&rexW != 0 {
		w = w1
	}
	return fits(p.w, w) && fits(p.l, l0<<f.vl) && fits(p.pp, f.pp) && fits(p.mod, where) && fits(p.reg, 1<<f.reg()) && fits(p.rm, 1<<f.rm())
}

func fits(mask, bit uint8) bool { return mask == 0 || mask&bit != 0 }

// index lists, for every opcode, the rows of a table that may match it, in the
// table's order.
type index [nSpaces][256][]uint16

func newIndex(n int, row func(int) *pattern) *index {
	x := new(index)
	for i := range n {
		p := row(i)
		for op := int(p.lo); op <= int(p.last()); op++ {
			x[p.space][op] = append(x[p.space][op], uint16(i))
		}
	}
	return x
}

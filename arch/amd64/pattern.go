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
}

const (
	inMemory = 1 << iota
	inRegister
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
	return fits(p.pp, f.pp) && fits(p.mod, where) && fits(p.reg, 1<<f.reg()) && fits(p.rm, 1<<f.rm())
}

func fits(mask, bit uint8) bool { return mask == 0 || mask&bit != 0 }

// index finds the first row that may match an opcode: 0 for none, else one more
// than its place in the table.
type index [nSpaces][256]uint8

func newIndex(n int, row func(int) *pattern) *index {
	x := new(index)
	for i := n - 1; i >= 0; i-- {
		p := row(i)
		for op := int(p.lo); op <= int(p.last()); op++ {
			x[p.space][op] = uint8(i + 1)
		}
	}
	return x
}

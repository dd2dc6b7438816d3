package symbols

import "errors"

// A machine executes what DWARF expressions compute (DWARF 5 §2.5.1), as far as they compute with integers. There are no jumps, so an expression has as many steps
// as operations.

// cell is an entry on the machine's stack.
type cell struct {
	number
	v uint64 // its low bytes; the others are zero
	// word is where the same number is at a hit, if isWord: so that what it leads to can be read in the target.
	word   Word
	isWord bool
	sure   int64 // how many low bytes are the same to all debuggers, 0 for all of them
	isLate bool  // it comes from the function's caller, so that it is known only when a record is read
}

// signed is the cell's number by its type.
func (c cell) signed() int64 {
	if c.isUnsigned {
		return int64(c.v)
	}
	shift := 64 - 8*c.bytes()
	return int64(c.v<<shift) >> shift
}

// step is one operation with its operands.
type step struct {
	op  uint8
	n   uint64 // a constant, an index, a size, a register of the caller's at the entry, or that of a vector register
	off int64  // of opBreg0
	reg string // a general register
	to  number
}

// Operations that a step has. Those that push a constant are opConst8u in steps, those that push a register with an offset opBreg0.
const (
	opDeref       = 0x06
	opConst8u     = 0x0e
	opConstu      = 0x10
	opDup         = 0x12
	opDrop        = 0x13
	opOver        = 0x14
	opPick        = 0x15
	opSwap        = 0x16
	opRot         = 0x17
	opAbs         = 0x19
	opAnd         = 0x1a
	opDiv         = 0x1b
	opMinus       = 0x1c
	opMod         = 0x1d
	opMul         = 0x1e
	opNeg         = 0x1f
	opNot         = 0x20
	opOr          = 0x21
	opPlus        = 0x22
	opPlusUconst  = 0x23
	opShl         = 0x24
	opShr         = 0x25
	opShra        = 0x26
	opXor         = 0x27
	opEq          = 0x29
	opGe          = 0x2a
	opGt          = 0x2b
	opLe          = 0x2c
	opLt          = 0x2d
	opNe          = 0x2e
	opBregx       = 0x92
	opDerefSize   = 0x94
	opNop         = 0x96
	opImplicit    = 0x9e
	opConstType   = 0xa4
	opRegvalType  = 0xa5
	opDerefType   = 0xa6
	opConvert     = 0xa8
	opReinterpret = 0xa9
)

// Bounds of an expression: its operations, and the entries on the stack.
const (
	mostSteps  = 64
	mostStored = 32
)

// world is where a machine's expression finds what it computes with.
type world interface {
	register(name string) (cell, error)
	vector(n int) (uint64, error) // its low bytes
	load(at cell, size int64) (cell, error)
	entry(reg uint64) (cell, error) // what a register held at the function's entry
}

var (
	errNotComputed = errors.New("debug information computes the value in a way that is not understood")
	errNoQuotient  = errors.New("debug information divides by a number for which there is no quotient")
)

// machine is a stack on which steps are executed. While isDry is set, numbers are not known, and only their types and places matter.
type machine struct {
	world
	isDry bool
	stack []cell
}

// execute returns the last entry that steps leave on the stack.
func execute(w world, steps []step, isDry bool) (cell, error) {
	m := &machine{world: w, isDry: isDry}
	for _, s := range steps {
		if err := m.step(s); err != nil {
			return cell{}, err
		}
		if len(m.stack) > mostStored {
			return cell{}, errNotComputed
		}
	}
	return m.pop()
}

func (m *machine) push(c cell) {
	c = c.cut()
	c.isWord = c.isWord && c.bytes() == 8 && c.sure == 0
	m.stack = append(m.stack, c)
}

func (m *machine) pop() (cell, error) { return m.pick(0, true) }

// pick is the entry below n others.
func (m *machine) pick(n uint64, take bool) (cell, error) {
	if n >= uint64(len(m.stack)) {
		return cell{}, errNotComputed
	}
	i := len(m.stack) - 1 - int(n)
	c := m.stack[i]
	if take {
		m.stack = m.stack[:i]
	}
	return c, nil
}

func (m *machine) step(s step) (err error) {
	var c cell
	switch s.op {
	case opConst8u:
		c = cell{v: s.n, word: Word{IsConst: true, Plus: int64(s.n)}, isWord: true}
	case opStatic:
		c = cell{v: s.n}
	case opConstType:
		c = cell{v: s.n, number: s.to}
	case opBreg0:
		if c, err = m.register(s.reg); err == nil {
			c = c.plus(s.off)
		}
	case opRegvalType:
		c, err = m.typedRegister(s)
	case opEntryValue:
		if c, err = m.entry(s.n); err == nil {
			c.isLate, c.isWord = true, false
		}
	case opDup:
		c, err = m.pick(0, false)
	case opOver:
		c, err = m.pick(1, false)
	case opPick:
		c, err = m.pick(s.n, false)
	case opDrop:
		_, err = m.pop()
		return err
	case opSwap, opRot:
		return m.turn(s.op)
	default:
		return m.operate(s)
	}
	if err == nil {
		m.push(c)
	}
	return err
}

func (m *machine) typedRegister(s step) (c cell, err error) {
	if s.reg != "" {
		c, err = m.register(s.reg)
	} else {
		c.v, err = m.vector(int(s.n))
	}
	c.number = s.to
	return c, err
}

// turn moves the first entry behind the next one, or the next two.
func (m *machine) turn(op uint8) error {
	n := len(m.stack)
	behind := 1
	if op == opRot {
		behind = 2
	}
	if n <= behind {
		return errNotComputed
	}
	top := m.stack[n-1]
	copy(m.stack[n-behind:], m.stack[n-1-behind:n-1])
	m.stack[n-1-behind] = top
	return nil
}

// operate replaces the first entries by what is made of them.
func (m *machine) operate(s step) error {
	a, err := m.pop()
	if err != nil {
		return err
	}
	if a.sure > 0 && !(s.op == opConvert && s.to.bytes() <= a.sure && !s.to.isFloat) {
		return errNotComputed
	}
	var c cell
	switch s.op {
	case opDeref, opDerefSize, opDerefType:
		if c, err = m.deref(a, s); err != nil {
			return err
		}
	case opPlusUconst:
		if a.isFloat {
			return errNotComputed
		}
		c = a.distant(s.n)
	case opConvert, opReinterpret:
		if c, err = m.converted(a, s); err != nil {
			return err
		}
	case opNeg, opNot, opAbs:
		if a.isFloat {
			return errNotComputed
		}
		c = cell{number: a.number, v: a.unary(s.op), isLate: a.isLate}
	default:
		b, err := m.pop()
		if err != nil {
			return err
		}
		if b.sure > 0 {
			return errNotComputed
		}
		if c, err = m.binary(s.op, b, a); err != nil {
			return err
		}
		c.isLate = a.isLate || b.isLate
	}
	m.push(c)
	return nil
}

// deref is what is at an address.
func (m *machine) deref(at cell, s step) (c cell, err error) {
	size := int64(s.n)
	if at.isFloat || at.bytes() != 8 || size != 1 && size != 2 && size != 4 && size != 8 {
		return c, errNotComputed
	}
	if c, err = m.load(at, size); err != nil {
		return c, err
	}
	c.number, c.isWord = s.to, c.isWord && size == 8
	return c, nil
}

// plus is c and a distance. Where c is, the sum is too.
func (c cell) plus(n int64) cell {
	c.v += uint64(n)
	c.word.Plus += n
	return c
}

func (c cell) unary(op uint8) uint64 {
	switch {
	case op == opNot:
		return ^c.v
	case op == opNeg, c.signed() < 0 && !c.isUnsigned:
		return -c.v
	}
	return c.v
}

// binary is an operation with a, the entry below, and b.
func (m *machine) binary(op uint8, a, b cell) (c cell, err error) {
	if a.isFloat || b.isFloat {
		return c, errNotComputed
	}
	if c.number = a.number; a.number != b.number { // to gdb shifts are no exception
		return c, errNotComputed
	}
	switch op {
	case opShl, opShr, opShra:
		c.v, err = m.shifted(op, a, b)
	case opPlus, opMinus:
		return sum(a, b, op == opMinus), nil
	case opAnd:
		c.v = a.v & b.v
	case opOr:
		c.v = a.v | b.v
	case opXor:
		c.v = a.v ^ b.v
	case opMul:
		c.v = a.v * b.v
	case opDiv, opMod:
		c.v, err = m.divided(op, a, b)
	case opEq, opGe, opGt, opLe, opLt, opNe:
		c.number = number{}
		if compare(op, a, b) {
			c.v = 1
		}
	default:
		err = errNotComputed
	}
	return c, err
}

// sum is a and b, or a without b. A distance from a word is still found by it.
func sum(a, b cell, isMinus bool) cell {
	c := cell{number: a.number, v: a.v + b.v}
	if isMinus {
		c.v = a.v - b.v
		b.word.Plus = -b.word.Plus
	}
	switch {
	case !a.isWord || !b.isWord:
	case b.word.IsConst:
		c.word, c.isWord = a.word, true
		c.word.Plus += b.word.Plus
	case a.word.IsConst && !isMinus:
		c.word, c.isWord = b.word, true
		c.word.Plus += a.word.Plus
	}
	return c
}

func (m *machine) shifted(op uint8, a, b cell) (uint64, error) {
	switch {
	case m.isDry:
		return 0, nil
	case b.v >= uint64(8*a.bytes()): // debuggers do not agree on that
		return 0, errNotComputed
	case op == opShl:
		return a.v << b.v, nil
	case op == opShr:
		return a.v >> b.v, nil
	}
	shift := 64 - 8*a.bytes() // with the sign, whatever the type
	return uint64(int64(a.v<<shift) >> shift >> b.v), nil
}

// divided is a quotient, with the sign of the type, or a remainder, in which the generic type has none.
func (m *machine) divided(op uint8, a, b cell) (uint64, error) {
	isUnsigned := a.isUnsigned || op == opMod && a.size == 0
	switch {
	case m.isDry:
		return 0, nil
	case b.v == 0, !isUnsigned && b.signed() == -1 && a.v == 1<<(8*a.bytes()-1):
		return 0, errNoQuotient
	case isUnsigned && op == opDiv:
		return a.v / b.v, nil
	case isUnsigned:
		return a.v % b.v, nil
	case op == opDiv:
		return uint64(a.signed() / b.signed()), nil
	}
	return uint64(a.signed() % b.signed()), nil
}

func compare(op uint8, a, b cell) bool {
	less := a.signed() < b.signed()
	if a.isUnsigned {
		less = a.v < b.v
	}
	switch op {
	case opEq:
		return a.v == b.v
	case opNe:
		return a.v != b.v
	case opGe:
		return !less
	case opGt:
		return !less && a.v != b.v
	case opLe:
		return less || a.v == b.v
	}
	return less
}

package program

import "slices"

// Type is a type of number in the target's memory.
type Type struct {
	Size   int // 1, 2, 4 or 8 bytes
	Signed bool
}

// The types, by the names that the kernel's fetch arguments have for them.
var (
	U8  = Type{1, false}
	U16 = Type{2, false}
	U32 = Type{4, false}
	U64 = Type{8, false}
	S8  = Type{1, true}
	S16 = Type{2, true}
	S32 = Type{4, true}
	S64 = Type{8, true}
)

// Expr is a number that is found out at a hit.
type Expr struct {
	reg   string // a register, or
	fn    source // a helper's result, or
	item  int    // of the record: 8 bytes of it from n on; or
	n     int64  // a constant, or a cell
	steps []step
	zero  bool // it is 0 where it would fault
}

type source uint8

const (
	fromConst source = iota
	fromReg
	fromTime
	fromThread
	fromProcessor
	fromItem
	fromSequence
)

// step is one operation on a number.
type step struct {
	op  stepOp
	off int64 // or the divisor, or the seed
	typ Type
}

type stepOp uint8

const (
	narrow stepOp = iota // add off, and take what typ holds
	load                 // read the memory at the number plus off
	modulo
	mixed
)

// Reg is a register of Program.Regs.
func Reg(name string) Expr { return Expr{fn: fromReg, reg: name} }

// ItemWord is the 8 bytes at off of the record's i-th item, which stands before the item that this
// is for. Bytes that could not be read are zeros.
func ItemWord(i int, off int64) Expr { return Expr{fn: fromItem, item: i, n: off} }

// Const is a constant.
func Const(n int64) Expr { return Expr{n: n} }

// Now is the helper Time's result.
func Now() Expr { return Expr{fn: fromTime} }

// CurrentThread is the helper Thread's result.
func CurrentThread() Expr { return Expr{fn: fromThread} }

// CurrentProcessor is the helper Processor's result.
func CurrentProcessor() Expr { return Expr{fn: fromProcessor} }

// Sequence is how often Sequence(cell) has been evaluated before, at all hits of the probe in its
// address space: 0 the first time. cell is one of the program's state, whose size follows from the highest cell that
// is used.
func Sequence(cell int) Expr { return Expr{fn: fromSequence, n: int64(cell)} }

// StackWord is the n-th 8-byte word of the stack, from the word that the stack pointer
// register sp points to.
func StackWord(sp string, n int) Expr { return Reg(sp).Load(int64(8*n), U64) }

// Load is the number in the target's memory off bytes behind e.
func (e Expr) Load(off int64, t Type) Expr { return e.with(step{load, off, t}) }

// Plus is e plus n, modulo 1<<64.
func (e Expr) Plus(n int64) Expr { return e.with(step{off: n, typ: U64}) }

// As is the low bytes of e as a t.
func (e Expr) As(t Type) Expr { return e.with(step{typ: t}) }

// Mod is the remainder of e divided by n, which is not 0, both unsigned.
func (e Expr) Mod(n uint64) Expr { return e.with(step{op: modulo, off: int64(n), typ: U64}) }

// Mixed is a pseudo-random number: number e of the sequence of seed (fault.Mix;
// splitmix64, Steele, Lea, Flood 2014).
func (e Expr) Mixed(seed uint64) Expr { return e.with(step{op: mixed, off: int64(seed), typ: U64}) }

// OrZero is e, or 0 where finding it out needs memory that can't be read. Operations
// before and after it do not change that.
func (e Expr) OrZero() Expr {
	e.zero = true
	return e
}

func (e Expr) with(s step) Expr {
	e.steps = append(e.steps[:len(e.steps):len(e.steps)], s)
	return e
}

// Reads reports whether finding out e needs memory, which it may not be able to read.
func (e Expr) Reads() bool {
	return slices.ContainsFunc(e.steps, func(s step) bool { return s.op == load })
}

// mayFault reports whether finding out e may fail.
func (e Expr) mayFault() bool {
	return !e.zero && e.Reads()
}

// Op is a comparison.
type Op uint8

const (
	Equal Op = iota
	NotEqual
	Less // and so on, of signed numbers
	LessEqual
	Greater
	GreaterEqual
	Below // and so on, of unsigned numbers
	BelowEqual
	Above
	AboveEqual
	AnyBit // a&b is not zero
)

// Cond is a condition. A condition on memory that can't be read is not met. Its
// opposite is not met either.
type Cond struct {
	kind condKind
	op   Op
	a, b Expr
	list []Cond
}

type condKind uint8

const (
	always condKind = iota
	compare
	allOf
	anyOf
	notOf
)

// Compare is the condition a op b.
func Compare(a Expr, op Op, b Expr) Cond { return Cond{kind: compare, op: op, a: a, b: b} }

// All is met if all of conds are, one after the other (&&).
func All(conds ...Cond) Cond { return Cond{kind: allOf, list: conds} }

// Any is met if one of conds is met (||). The first one that is met decides; later ones
// are not evaluated.
func Any(conds ...Cond) Cond { return Cond{kind: anyOf, list: conds} }

// Not is met if c is not (!).
func Not(c Cond) Cond { return Cond{kind: notOf, list: []Cond{c}} }

// Registers returns the registers that c reads, each once.
func (c Cond) Registers() (names []string) {
	c.With(func(reg string) Expr {
		if !slices.Contains(names, reg) {
			names = append(names, reg)
		}
		return Reg(reg)
	})
	return names
}

// Cells is one more than the highest cell of c's Sequences, 0 if there are none.
func (c Cond) Cells() (n int) {
	for _, e := range []Expr{c.a, c.b} {
		if e.fn == fromSequence {
			n = max(n, int(e.n)+1)
		}
	}
	for _, sub := range c.list {
		n = max(n, sub.Cells())
	}
	return n
}

// With is c with what each of its registers is told to be.
func (c Cond) With(is func(reg string) Expr) Cond {
	c.a, c.b = c.a.withRegister(is), c.b.withRegister(is)
	c.list = slices.Clone(c.list)
	for i := range c.list {
		c.list[i] = c.list[i].With(is)
	}
	return c
}

func (e Expr) withRegister(is func(string) Expr) Expr {
	if e.fn != fromReg {
		return e
	}
	base := is(e.reg)
	base.steps, base.zero = slices.Concat(base.steps, e.steps), base.zero || e.zero
	return base
}

// Always tells that c is the zero Cond, which is always met.
func (c Cond) Always() bool { return c.kind == always }

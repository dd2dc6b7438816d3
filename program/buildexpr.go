package program

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// scratch is where in the stack a number is read to.
const scratch = -8

// expr finds out e into r, by way of r0 to r5. A read of a bad address goes to fault.
func (b *builder) expr(e Expr, r asm.Register, fault string) error {
	if !e.zero {
		return b.steps(e, r, fault)
	}
	bad, done := b.newLabel(), b.newLabel()
	if err := b.steps(e, r, bad); err != nil {
		return err
	}
	b.add(asm.Ja.Label(done))
	b.label(bad)
	b.add(asm.Mov.Imm(r, 0))
	b.label(done)
	return nil
}

func (b *builder) steps(e Expr, r asm.Register, fault string) error {
	steps, err := b.base(e, r)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if !s.typ.valid() {
			return fmt.Errorf("a number of %d bytes", s.typ.Size)
		}
		switch s.op {
		case narrow:
			b.plus(r, s.off)
			b.narrow(r, s.typ)
		case load:
			b.plus(r, s.off)
			b.load(r, s.typ, fault)
		case modulo:
			if s.off == 0 {
				return errors.New("division by zero")
			}
			b.with(asm.Mod, r, s.off)
		case mixed:
			b.mix(r, s.off)
		}
	}
	return nil
}

// base loads the value that e begins with, and returns the steps that follow.
func (b *builder) base(e Expr, r asm.Register) (steps []step, err error) {
	switch e.fn {
	case fromConst:
		b.constant(r, e.n)
	case fromReg:
		n := slices.Index(b.p.Regs, e.reg)
		if n < 0 {
			return nil, fmt.Errorf("no register %s", e.reg)
		}
		load := asm.LoadMem(r, asm.R6, int16(8*n), asm.DWord)
		if s := e.steps; len(s) > 0 && s[0].op == narrow && s[0].off == 0 && s[0].typ.valid() {
			b.add(narrowLoad(load, s[0].typ))
			return s[1:], nil
		}
		b.add(load)
	case fromItem:
		if e.item < 0 || e.item >= len(b.fields) || e.n < 0 || e.n > int64(b.fields[e.item].Size+7)&^7-8 {
			return nil, fmt.Errorf("no 8 bytes at %d of item %d", e.n, e.item)
		}
		b.add(asm.LoadMem(r, asm.R7, int16(b.fields[e.item].Off+int(e.n)), asm.DWord))
	case fromSequence:
		return e.steps, b.sequence(r, e.n)
	case fromTime, fromThread, fromProcessor:
		b.add(map[source]asm.BuiltinFunc{fromTime: Time, fromThread: Thread, fromProcessor: Processor}[e.fn].Call())
		if r != asm.R0 {
			b.add(asm.Mov.Reg(r, asm.R0))
		}
	}
	return e.steps, nil
}

func (t Type) valid() bool { return t.Size == 1 || t.Size == 2 || t.Size == 4 || t.Size == 8 }

var sizes = map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}

// narrowLoad makes a load of 8 bytes one of a t, at the same place.
func narrowLoad(ins asm.Instruction, t Type) asm.Instruction {
	ins.OpCode = asm.LoadMemOp(sizes[t.Size])
	if t.Signed && t.Size < 8 {
		ins.OpCode = asm.LoadMemSXOp(sizes[t.Size])
	}
	return ins
}

func (b *builder) constant(r asm.Register, n int64) {
	if n == int64(int32(n)) {
		b.add(asm.Mov.Imm(r, int32(n)))
	} else {
		b.add(asm.LoadImm(r, n, asm.DWord))
	}
}

// stateToBe stands for the number of the state among the maps, since more maps may
// still come before it.
const stateToBe = MaxMaps

// sequence adds one to a cell of the state, and loads its old value into r.
func (b *builder) sequence(r asm.Register, cell int64) error {
	if cell < 0 || cell >= MaxCells {
		return fmt.Errorf("no cell %d of a state: want 0 to %d", cell, MaxCells-1)
	}
	b.cells = max(b.cells, int(cell)+1)
	b.add(asm.LoadMapPtr(asm.R1, stateToBe), asm.Mov.Imm(asm.R2, int32(cell)), FetchAdd.Call())
	if r != asm.R0 {
		b.add(asm.Mov.Reg(r, asm.R0))
	}
	return nil
}

// with is r op n, and may change r5 for that. n is as an unsigned number.
func (b *builder) with(op asm.ALUOp, r asm.Register, n int64) {
	if n == int64(int32(n)) {
		b.add(op.Imm(r, int32(n)))
	} else {
		b.constant(asm.R5, n)
		b.add(op.Reg(r, asm.R5))
	}
}

// mix is the output function of splitmix64 over the r-th state from seed on.
func (b *builder) mix(r asm.Register, seed int64) {
	shifted := func(by int32) {
		b.add(asm.Mov.Reg(asm.R5, r), asm.RSh.Imm(asm.R5, by), asm.Xor.Reg(r, asm.R5))
	}
	factor := func(n uint64) { b.with(asm.Mul, r, int64(n)) }
	b.plus(r, 1)
	factor(0x9e3779b97f4a7c15)
	b.plus(r, seed)
	shifted(30)
	factor(0xbf58476d1ce4e5b9)
	shifted(27)
	factor(0x94d049bb133111eb)
	shifted(31)
}

// plus adds n to r, and may change r5 for that.
func (b *builder) plus(r asm.Register, n int64) {
	if n != 0 {
		b.with(asm.Add, r, n)
	}
}

// load replaces the address in r by the t there.
func (b *builder) load(r asm.Register, t Type, fault string) {
	if r != asm.R3 {
		b.add(asm.Mov.Reg(asm.R3, r))
	}
	b.add(
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, scratch),
		asm.Mov.Imm(asm.R2, int32(t.Size)),
		Read.Call(),
		asm.JNE.Imm(asm.R0, 0, fault),
		narrowLoad(asm.LoadMem(r, asm.R10, scratch, asm.DWord), t),
	)
}

// narrow makes r the t that its low bytes are.
func (b *builder) narrow(r asm.Register, t Type) {
	switch {
	case t.Size == 8:
	case t.Signed:
		op := map[int]asm.ALUOp{1: asm.MovSX8, 2: asm.MovSX16, 4: asm.MovSX32}[t.Size]
		b.add(op.Reg(r, r))
	case t.Size == 4:
		b.add(asm.Mov.Reg32(r, r))
	default:
		b.add(asm.And.Imm(r, 1<<(8*t.Size)-1))
	}
}

// cond goes on if c is met; else to the label no. A condition that is not to be met
// (negate) goes on if it is not.
func (b *builder) cond(c Cond, no string, negate bool) error {
	switch c.kind {
	case always:
		if negate {
			b.add(asm.Ja.Label(no))
		}
		return nil
	case compare:
		return b.compare(c, no, negate)
	case notOf:
		return b.cond(c.list[0], no, !negate)
	}
	if (c.kind == allOf) != negate { // each of them has to be
		for _, sub := range c.list {
			if err := b.cond(sub, no, negate); err != nil {
				return err
			}
		}
		return nil
	}
	return b.anyOf(c, no, negate)
}

// anyOf goes on if one of c's conditions is as it shall be.
func (b *builder) anyOf(c Cond, no string, negate bool) error {
	yes := b.newLabel()
	for i, sub := range c.list {
		next := b.newLabel()
		if i == len(c.list)-1 {
			next = no
		}
		if err := b.cond(sub, next, negate); err != nil {
			return err
		}
		if i < len(c.list)-1 {
			b.add(asm.Ja.Label(yes))
			b.label(next)
		}
	}
	if len(c.list) == 0 {
		b.add(asm.Ja.Label(no))
	}
	b.label(yes)
	return nil
}

// jumps are the jumps that are taken if the comparison is true, and if it is false.
var jumps = [...][2]asm.JumpOp{
	Equal:        {asm.JEq, asm.JNE},
	NotEqual:     {asm.JNE, asm.JEq},
	Less:         {asm.JSLT, asm.JSGE},
	LessEqual:    {asm.JSLE, asm.JSGT},
	Greater:      {asm.JSGT, asm.JSLE},
	GreaterEqual: {asm.JSGE, asm.JSLT},
	Below:        {asm.JLT, asm.JGE},
	BelowEqual:   {asm.JLE, asm.JGT},
	Above:        {asm.JGT, asm.JLE},
	AboveEqual:   {asm.JGE, asm.JLT},
	AnyBit:       {asm.JSet, asm.JSet},
}

func (b *builder) compare(c Cond, no string, negate bool) error {
	if int(c.op) >= len(jumps) {
		return fmt.Errorf("no comparison %d", c.op)
	}
	if err := b.expr(c.a, asm.R8, no); err != nil {
		return err
	}
	jump := func(op asm.JumpOp, label string) asm.Instruction { return op.Reg(asm.R8, asm.R2, label) }
	if n := c.b.n; c.b.fn == fromConst && len(c.b.steps) == 0 && n == int64(int32(n)) {
		jump = func(op asm.JumpOp, label string) asm.Instruction { return op.Imm(asm.R8, int32(n), label) }
	} else if err := b.expr(c.b, asm.R2, no); err != nil {
		return err
	}
	switch {
	case negate:
		b.add(jump(jumps[c.op][0], no))
	case c.op == AnyBit:
		yes := b.newLabel()
		b.add(jump(asm.JSet, yes), asm.Ja.Label(no))
		b.label(yes)
	default:
		b.add(jump(jumps[c.op][1], no))
	}
	return nil
}

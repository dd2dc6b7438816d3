package jit

import (
	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// Operations of the groups that have their number in ModRM (SDM vol. 2D table A-6).
const (
	extRol xreg = 0
	extShl xreg = 4
	extShr xreg = 5
	extSar xreg = 7

	extNeg  xreg = 3
	extMul  xreg = 4
	extDiv  xreg = 6
	extIdiv xreg = 7
)

var simpleOps = map[bpf.ALUOp]xreg{bpf.Add: opAdd, bpf.Sub: opSub, bpf.And: opAnd, bpf.Or: opOr, bpf.Xor: opXor}
var shiftOps = map[bpf.ALUOp]xreg{bpf.LSh: extShl, bpf.RSh: extShr, bpf.ArSh: extSar}

// arithmetic generates an instruction of the ALU classes; size is 4 or 8 bytes.
func (c *compiler) arithmetic(n int, i program.Insn, size int) {
	op := i.OpCode.ALUOp()
	if op&0xff == bpf.Mov {
		c.mov(n, i, size)
		return
	}
	dst := c.own(n, i.Dst)
	if simple, ok := simpleOps[op]; ok {
		c.simple(n, i, size, simple, dst)
		return
	}
	if shift, ok := shiftOps[op]; ok {
		c.shift(n, i, size, shift, dst)
		return
	}
	switch op {
	case bpf.Neg:
		c.ins(size, 0xf7, extNeg, inReg(dst))
	case bpf.Swap:
		c.swap(i, dst)
	case bpf.Mul:
		if v, ok := c.immediate(n, i); ok {
			c.ins(size, 0x69, dst, inReg(dst), byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
			return
		}
		c.ins(size, 0x0faf, dst, inReg(c.reg(n, i.Src, t0)))
	default:
		c.divide(n, i, size, dst)
	}
}

// immediate is the second operand if it can stand in an instruction.
func (c *compiler) immediate(n int, i program.Insn) (int32, bool) {
	if i.OpCode.Source() == bpf.RegSource {
		return c.small(n, i.Src)
	}
	return int32(i.Constant), true
}

// source is the second operand in a register, scratch if it is in none.
func (c *compiler) source(n int, i program.Insn, scratch xreg) xreg {
	if i.OpCode.Source() == bpf.RegSource {
		return c.reg(n, i.Src, scratch)
	}
	c.constant(c.use(scratch), int64(int32(i.Constant)))
	return scratch
}

func (c *compiler) simple(n int, i program.Insn, size int, op, dst xreg) {
	if v, ok := c.immediate(n, i); ok {
		c.aluImm(size, op, inReg(dst), v)
		return
	}
	c.alu(size, op, inReg(dst), c.reg(n, i.Src, t0))
}

func (c *compiler) mov(n int, i program.Insn, size int) {
	dst := c.phys[i.Dst]
	if i.OpCode.Source() == bpf.ImmSource {
		v := int64(int32(i.Constant))
		if size == 4 {
			v = int64(uint32(v))
		}
		c.constant(dst, v)
		return
	}
	src := c.reg(n, i.Src, t0)
	switch i.OpCode.ALUOp() {
	case bpf.MovSX8:
		c.loadSigned(1, size, dst, inReg(src))
	case bpf.MovSX16:
		c.loadSigned(2, size, dst, inReg(src))
	case bpf.MovSX32:
		c.loadSigned(4, size, dst, inReg(src))
	default:
		if size == 8 {
			c.move(dst, src)
			return
		}
		c.load(size, dst, inReg(src))
	}
}

// shift masks its count as the processor does: to 5 or 6 bits.
func (c *compiler) shift(n int, i program.Insn, size int, op, dst xreg) {
	if v, ok := c.immediate(n, i); ok {
		c.ins(size, 0xc1, op, inReg(dst), byte(v)&byte(8*size-1))
		return
	}
	c.move(c.use(t1), c.reg(n, i.Src, t1))
	c.ins(size, 0xd3, op, inReg(dst))
}

// swap reverses bytes; to little-endian only the upper bits go.
func (c *compiler) swap(i program.Insn, dst xreg) {
	width := int(i.Constant) / 8
	swap := i.OpCode.Class() == bpf.ALU64Class || i.OpCode.Endianness() == bpf.BE
	switch {
	case swap && width == 2:
		c.ins(2, 0xc1, extRol, inReg(dst), 8)
		c.load(2, dst, inReg(dst))
	case swap:
		c.bswap(width, dst)
	case width < 8:
		c.load(width, dst, inReg(dst))
	}
}

func (c *compiler) bswap(size int, x xreg) {
	rex := byte(0x40 | x>>3)
	if size == 8 {
		rex |= 8
	}
	c.bytes(rex, 0x0f, 0xc8|byte(x&7))
}

// divide is RFC 9669 §4.1: x / 0 is 0, x % 0 is x, and the smallest number divided by -1
// is itself.
func (c *compiler) divide(n int, i program.Insn, size int, dst xreg) {
	by := c.source(n, i, t1)
	c.use(t0)
	c.use(t2)
	op := i.OpCode.ALUOp()
	signed, mod := op == bpf.SDiv || op == bpf.SMod, op&0xff == bpf.Mod
	zero, minus, done := c.newLabel(), c.newLabel(), c.newLabel()
	c.ins(size, 0x85, by, inReg(by))
	c.jumpIf(amd64.CondE, zero)
	if signed {
		c.aluImm(size, opCmp, inReg(by), -1)
		c.jumpIf(amd64.CondE, minus)
	}
	c.quotient(size, dst, by, signed)
	if mod {
		c.ins(size, 0x8b, dst, inReg(t2))
	} else {
		c.ins(size, 0x8b, dst, inReg(t0))
	}
	c.mark(done)
	c.later(func() {
		c.mark(zero)
		if mod {
			c.ins(size, 0x8b, dst, inReg(dst))
		} else {
			c.constant(dst, 0)
		}
		c.jump(done)
		c.mark(minus)
		if mod {
			c.constant(dst, 0)
		} else {
			c.ins(size, 0xf7, extNeg, inReg(dst))
		}
		c.jump(done)
	})
}

// quotient leaves it in t0, and the remainder in t2.
func (c *compiler) quotient(size int, dst, by xreg, signed bool) {
	c.ins(size, 0x8b, t0, inReg(dst))
	if !signed {
		c.constant(t2, 0)
		c.ins(size, 0xf7, extDiv, inReg(by))
		return
	}
	if size == 8 {
		c.bytes(0x48)
	}
	c.bytes(0x99) // cdq, cqo
	c.ins(size, 0xf7, extIdiv, inReg(by))
}

var conditions = map[bpf.JumpOp]byte{
	bpf.JEq: amd64.CondE, bpf.JNE: amd64.CondNE, bpf.JSet: amd64.CondNE,
	bpf.JGT: amd64.CondA, bpf.JGE: amd64.CondAE, bpf.JLT: amd64.CondB, bpf.JLE: amd64.CondBE,
	bpf.JSGT: amd64.CondG, bpf.JSGE: amd64.CondGE, bpf.JSLT: amd64.CondL, bpf.JSLE: amd64.CondLE,
}

// compare generates a conditional jump.
func (c *compiler) compare(n int, i program.Insn) {
	size := 8
	if i.OpCode.Class() == bpf.Jump32Class {
		size = 4
	}
	dst := c.reg(n, i.Dst, t0)
	v, imm := c.immediate(n, i)
	test := i.OpCode.JumpOp() == bpf.JSet
	switch {
	case imm && v == 0 && !test:
		c.ins(size, 0x85, dst, inReg(dst))
	case imm && test:
		c.ins(size, 0xf7, 0, inReg(dst), byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	case imm:
		c.aluImm(size, opCmp, inReg(dst), v)
	case test:
		c.ins(size, 0x85, c.reg(n, i.Src, t1), inReg(dst))
	default:
		c.alu(size, opCmp, inReg(dst), c.reg(n, i.Src, t1))
	}
	c.jumpIf(conditions[i.OpCode.JumpOp()], c.places[i.Target])
}

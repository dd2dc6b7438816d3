package jit

import (
	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// storeMem generates a store or an atomic operation.
func (c *compiler) storeMem(n int, i program.Insn) {
	to, size := c.region(i.Mem, i.Off), i.OpCode.Size().Sizeof()
	if i.OpCode.Class() == bpf.StClass {
		c.storeImm(size, to, int32(i.Constant))
		return
	}
	if i.OpCode.Mode() == bpf.AtomicMode {
		c.atomic(n, i, to, size)
		return
	}
	if v, ok := c.small(n, i.Src); ok {
		c.storeImm(size, to, v)
		return
	}
	c.store(size, to, c.reg(n, i.Src, t0))
}

var atomicOps = map[bpf.AtomicOp]xreg{
	bpf.AddAtomic: opAdd, bpf.AndAtomic: opAnd, bpf.OrAtomic: opOr, bpf.XorAtomic: opXor,
	bpf.FetchAdd: opAdd, bpf.FetchAnd: opAnd, bpf.FetchOr: opOr, bpf.FetchXor: opXor,
}

// atomic generates an atomic operation of size 4 or 8 bytes on to.
func (c *compiler) atomic(n int, i program.Insn, to place, size int) {
	kind := i.OpCode.AtomicOp()
	op, simple := atomicOps[kind]
	fetched := c.wanted(n, i.Src)
	switch {
	case kind == bpf.CmpXchg:
		c.compareExchange(n, i, to, size)
	case kind == bpf.Xchg:
		x := c.taken(n, i.Src)
		c.ins(size, 0x87, x, to)
		if fetched {
			c.ins(size, 0x8b, c.phys[i.Src], inReg(x))
		}
	case kind == bpf.FetchAdd && fetched:
		x := c.own(n, i.Src)
		c.lock()
		c.ins(size, 0x0fc1, x, to)
	case simple && (!fetched || defs(i) == 0):
		x := c.reg(n, i.Src, t0)
		c.lock()
		c.alu(size, op, to, x)
	case simple:
		c.fetch(n, i, to, size, op)
	}
}

// taken is r's value in a register that may be changed.
func (c *compiler) taken(n int, r bpf.Register) xreg {
	c.move(c.use(t0), c.reg(n, r, t0))
	return t0
}

// fetch is an operation that the processor does not have: it is tried until nobody
// interferes.
func (c *compiler) fetch(n int, i program.Insn, to place, size int, op xreg) {
	src, again := c.own(n, i.Src), c.newLabel()
	c.ins(size, 0x8b, c.use(t0), to)
	c.mark(again)
	c.ins(size, 0x8b, c.use(t1), inReg(t0))
	c.alu(size, op, inReg(t1), src)
	c.lock()
	c.ins(size, 0x0fb1, t1, to)
	c.jumpIf(amd64.CondNE, again)
	c.ins(size, 0x8b, src, inReg(t0))
}

// compareExchange leaves the old value in r0, extended by zeros.
func (c *compiler) compareExchange(n int, i program.Insn, to place, size int) {
	src := c.reg(n, i.Src, t1)
	c.move(c.use(t0), c.reg(n, bpf.R0, t0))
	c.lock()
	c.ins(size, 0x0fb1, src, to)
	if c.wanted(n, bpf.R0) {
		c.ins(size, 0x8b, c.phys[bpf.R0], inReg(t0))
	}
}

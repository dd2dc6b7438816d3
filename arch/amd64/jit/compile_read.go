package jit

import (
	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// piece is one load or store of several that cover a run of bytes.
type piece struct{ off, size int }

// pieces covers n bytes, 1 or more, with few accesses, which may overlap.
func pieces(n int) (list []piece) {
	off := 0
	for ; n-off >= 8; off += 8 {
		list = append(list, piece{off, 8})
	}
	for rest := n - off; rest > 0; rest = n - off {
		size := 1
		for size < rest {
			size *= 2
		}
		switch {
		case size > n:
			size /= 2
		default:
			off = n - size
		}
		list = append(list, piece{off, size})
		off += size
	}
	return list
}

// unrolled is the bytes up to which a copy is no loop.
const unrolled = 64

// read copies all of the bytes, or fills with zeros.
func (c *compiler) read(n int, h *program.HelperCall) {
	from := c.reg(n, bpf.R3, t2)
	if from == bp || from == t2 {
		c.move(c.use(t2), from) // relative to rbp the fault might be one of the stack segment
		from = t2
	}
	to, bad, done := c.region(h.Dst, h.Off), c.newLabel(), c.newLabel()
	start := 0
	if h.Size > unrolled {
		start = h.Size &^ 7
		c.loop(start, func(index place) {
			c.copy(8, to.indexedBy(index), inMem(from, 0).indexedBy(index), bad)
		})
	}
	for _, p := range pieces(h.Size) {
		if p.off+p.size > start {
			c.copy(p.size, to.plus(int32(p.off)), inMem(from, int32(p.off)), bad)
		}
	}
	c.answerConst(n, 0)
	c.mark(done)
	c.onBadRead(n, h, to, bad, done)
}

// copy moves a piece through t0.
func (c *compiler) copy(size int, to, from place, bad label) {
	c.use(t0)
	c.mayFault(bad)
	c.load(size, t0, from)
	c.store(size, to, t0)
}

// indexedBy adds the register of index.
func (o place) indexedBy(index place) place {
	o.index = index.base
	return o
}

// loop does body for each 8 of n bytes; n is a multiple of that. The index is in t1.
func (c *compiler) loop(n int, body func(index place)) {
	again := c.newLabel()
	c.constant(c.use(t1), 0)
	c.mark(again)
	body(inReg(t1))
	c.aluImm(4, opAdd, inReg(t1), 8)
	c.aluImm(4, opCmp, inReg(t1), int32(n))
	c.jumpIf(amd64.CondB, again)
}

// onBadRead fills the destination with zeros and answers -EFAULT.
func (c *compiler) onBadRead(n int, h *program.HelperCall, to place, bad, done label) {
	c.later(func() {
		c.mark(bad)
		start := 0
		if h.Size > unrolled {
			start = h.Size &^ 7
			c.constant(c.use(t0), 0)
			c.loop(start, func(index place) { c.store(8, to.indexedBy(index), t0) })
		}
		for _, p := range pieces(h.Size) {
			if p.off+p.size > start {
				c.storeImm(p.size, to.plus(int32(p.off)), 0)
			}
		}
		c.answerConst(n, -program.Efault)
		c.jump(done)
	})
}

// address is the address argument in a register that is no scratch register.
func (c *compiler) address(n int, r bpf.Register) xreg {
	if v := c.in[n].r[r]; v.kind != valueConst {
		return c.reg(n, r, noX)
	}
	if c.phys[r] == noX { // the next attempt has one
		c.more |= bit(r)
		return t0
	}
	return c.own(n, r)
}

// readN copies t2 bytes; t1 is the index. The address is the index register of the operand, so that it
// may be rbp and still is relative to ds.
func (c *compiler) readN(n int, h *program.HelperCall) {
	from, to := c.address(n, bpf.R3), c.region(h.Dst, h.Off)
	c.move(c.use(t2), c.reg(n, bpf.R4, t2))
	fits, words, rest, bad, done := c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel()
	end := c.newLabel()
	c.aluImm(8, opCmp, inReg(t2), int32(h.Size))
	c.jumpIf(amd64.CondBE, fits)
	c.constant(t2, int64(h.Size))
	c.mark(fits)
	c.constant(c.use(t1), 0)
	c.mark(words)
	c.lea(c.use(t0), inMem(t1, 8))
	c.alu(4, opCmp, inReg(t0), t2)
	c.jumpIf(amd64.CondA, rest)
	c.copy(8, to.indexedBy(inReg(t1)), indexed(t1, from), bad)
	c.aluImm(4, opAdd, inReg(t1), 8)
	c.jump(words)
	c.mark(rest)
	c.alu(4, opCmp, inReg(t1), t2)
	c.jumpIf(amd64.CondAE, end)
	c.copy(1, to.indexedBy(inReg(t1)), indexed(t1, from), bad)
	c.aluImm(4, opAdd, inReg(t1), 1)
	c.jump(rest)
	c.mark(end)
	c.answer(n, t2)
	c.mark(done)
	c.onBadRead(n, h, to, bad, done)
}

// readString copies byte by byte: memory behind the end may not be readable.
func (c *compiler) readString(n int, h *program.HelperCall) {
	to, last := c.region(h.Dst, h.Off), h.Size-1
	if last == 0 {
		c.storeImm(1, to, 0)
		c.answerConst(n, 1)
		return
	}
	from := c.address(n, bpf.R3)
	again, end, bad, done := c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel()
	c.constant(c.use(t1), 0)
	c.mark(again)
	c.copy(1, to.indexedBy(inReg(t1)), indexed(t1, from), bad)
	c.aluImm(4, opAdd, inReg(t1), 1)
	c.ins(1, 0x84, t0, inReg(t0))
	c.jumpIf(amd64.CondE, end)
	c.aluImm(4, opCmp, inReg(t1), int32(last))
	c.jumpIf(amd64.CondB, again)
	c.storeImm(1, to.plus(int32(last)), 0)
	c.constant(t1, int64(h.Size))
	c.mark(end)
	c.answer(n, t1)
	c.mark(done)
	c.onBadRead(n, h, to, bad, done)
}

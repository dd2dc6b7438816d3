package jit

import (
	"encoding/binary"
	"math/bits"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// call generates a helper.
func (c *compiler) call(n int, i program.Insn) {
	switch h := i.Call; h.Func {
	case program.Count:
		c.count(c.shard(h.Map, 0))
	case program.HistLog2:
		c.histLog2(n, h)
	case program.HistLinear:
		c.histLinear(n, h)
	case program.Time:
		c.time(n)
	case program.Thread:
		c.thread(n)
	case program.Processor:
		c.processor(n)
	case program.Read:
		c.read(n, h)
	case program.ReadN:
		c.readN(n, h)
	case program.ReadString:
		c.readString(n, h)
	case program.FetchAdd:
		c.fetchAdd(n, h)
	case program.RingReserve:
		c.reserve(n, h)
	case program.RingCommit:
		c.ins(4, 0x83, opAdd, inMem(c.record, -program.RecordHeader), program.StateDone-program.StateBusy)
	}
}

// count adds one to a cell.
func (c *compiler) count(cell place) {
	c.lock()
	c.ins(8, 0xff, 0, cell)
}

// fetchAdd adds one to a cell of a state and returns its old value.
func (c *compiler) fetchAdd(n int, h *program.HelperCall) {
	cell := global(c.env.Maps[h.Map]).plus(int32(8 * h.Cell))
	if c.env.Far != nil && c.env.Far[h.Map] {
		c.constant(c.use(t1), int64(cell.target))
		cell = inMem(t1, 0)
	}
	if !c.wanted(n, bpf.R0) {
		c.count(cell)
		return
	}
	x := c.phys[bpf.R0]
	c.constant(x, 1)
	c.lock()
	c.ins(8, 0x0fc1, x, cell) // xadd
}

// answer sets r0, if anybody reads it.
func (c *compiler) answer(n int, x xreg) {
	if c.wanted(n, bpf.R0) {
		c.move(c.phys[bpf.R0], x)
	}
}

func (c *compiler) answerConst(n int, v int64) {
	if c.wanted(n, bpf.R0) {
		c.constant(c.phys[bpf.R0], v)
	}
}

// shard is cell of one of the copies of map m, which the page of the stack chooses (as in
// countBody). It may use t0 and t1.
func (c *compiler) shard(m int, cell int32) place {
	d := c.Maps[m]
	if d.Shards <= 1 {
		return global(c.env.Maps[m]).plus(8 * cell)
	}
	c.move(c.use(t0), sp)
	c.ins(8, 0xc1, extShr, inReg(t0), 12)
	c.ins(4, 0x69, t0, inReg(t0), binary.LittleEndian.AppendUint32(nil, goldenRatio)...)
	c.ins(4, 0xc1, extShr, inReg(t0), byte(32-bits.TrailingZeros(uint(d.Shards))))
	c.scale(t0, d.ShardStride())
	c.lea(c.use(t1), global(c.env.Maps[m]))
	return indexed(t1, t0).plus(8 * cell)
}

// goldenRatio is its fraction, times 1<<32.
const goldenRatio = 0x9e3779b9

// scale multiplies x.
func (c *compiler) scale(x xreg, by int) {
	if by&(by-1) == 0 {
		c.ins(4, 0xc1, extShl, inReg(x), byte(bits.TrailingZeros(uint(by))))
		return
	}
	c.ins(4, 0x69, x, inReg(x), binary.LittleEndian.AppendUint32(nil, uint32(by))...)
}

// cellsOf leaves the address of the cells of m's copy in t1. It uses t0.
func (c *compiler) cellsOf(m int) {
	if p := c.shard(m, 0); p.base == noX {
		c.lea(c.use(t1), p)
	} else {
		c.alu(8, opAdd, inReg(t1), t0)
	}
}

// histLog2: the cell is one more than the number of the highest bit, 0 for 0.
func (c *compiler) histLog2(n int, h *program.HelperCall) {
	c.cellsOf(h.Map)
	v, some := c.reg(n, bpf.R2, t0), c.newLabel()
	c.ins(8, 0x0fbd, c.use(t0), inReg(v)) // bsr
	c.jumpIf(amd64.CondNE, some)
	c.constant(t0, -1)
	c.mark(some)
	c.count(indexed(t1, t0).scaled(3).plus(8))
}

// histLinear: v - Min is the distance, unsigned if v is not below.
func (c *compiler) histLinear(n int, h *program.HelperCall) {
	m := c.Maps[h.Map]
	below, above, done := c.newLabel(), c.newLabel(), c.newLabel()
	c.move(c.use(t0), c.reg(n, bpf.R2, t0))
	c.constant(c.use(t2), m.Min)
	c.alu(8, opCmp, inReg(t0), t2)
	c.jumpIf(amd64.CondL, below)
	c.alu(8, opSub, inReg(t0), t2)
	c.constant(t2, m.Step*int64(m.Buckets))
	c.alu(8, opCmp, inReg(t0), t2)
	c.jumpIf(amd64.CondAE, above)
	c.bucket(uint64(m.Step), uint64(m.Buckets))
	c.mark(done)
	c.cellsOf(h.Map)
	c.count(indexed(t1, t2).scaled(3).plus(8))
	c.later(func() {
		c.mark(below)
		c.constant(t2, -1)
		c.jump(done)
		c.mark(above)
		c.constant(t2, int64(m.Buckets))
		c.jump(done)
	})
}

// bucket leaves t0 / step in t2; t0 is less than step times n. Where that is exact it multiplies by
// 1/step, rounded up to 64 binary digits: the error is less than t0/2^64, and must be less than 1/step.
func (c *compiler) bucket(step, n uint64) {
	high, _ := bits.Mul64(step*n, step)
	switch {
	case step&(step-1) == 0:
		c.ins(8, 0xc1, extShr, inReg(t0), byte(bits.TrailingZeros64(step)))
		c.move(t2, t0)
	case high == 0:
		c.constant(t2, int64(^uint64(0)/step+1))
		c.ins(8, 0xf7, extMul, inReg(t2))
	default:
		c.constant(c.use(t1), int64(step))
		c.constant(t2, 0)
		c.ins(8, 0xf7, extDiv, inReg(t1))
		c.move(t2, t0)
	}
}

func (c *compiler) time(n int) {
	if !c.wanted(n, bpf.R0) {
		return
	}
	c.use(t0)
	c.use(t2)
	forbidden, done := c.newLabel(), c.newLabel()
	c.mayFault(forbidden) // prctl(PR_SET_TSC)
	c.bytes(0x0f, 0x31)   // rdtsc
	c.ins(8, 0xc1, extShl, inReg(t2), 32)
	c.alu(8, opOr, inReg(t0), t2)
	c.mark(done)
	c.answer(n, t0)
	c.later(func() {
		c.mark(forbidden)
		c.constant(t0, 0)
		c.jump(done)
	})
}

func (c *compiler) thread(n int) {
	if !c.wanted(n, bpf.R0) {
		return
	}
	x := c.phys[bpf.R0]
	switch {
	case c.fsgsbase():
		c.readBase(x, 0)
	case c.env.ThreadPointer:
		none, done := c.newLabel(), c.newLabel()
		c.mayFault(none)
		c.bytes(0x64, 0x48|byte(x>>3<<2), 0x8b, 4|byte(x&7<<3), 0x25, 0, 0, 0, 0) // mov %fs:0, x
		c.mark(done)
		c.later(func() {
			c.mark(none)
			c.constant(x, 0)
			c.jump(done)
		})
	default:
		c.constant(x, 0)
	}
}

// processor reads the limit of the segment in which Linux keeps each processor's number, below that of its node
// (arch/x86/include/asm/segment.h, __CPUNODE_SEG; vdso_read_cpunode). No processor lacks the instruction.
func (c *compiler) processor(n int) {
	const (
		segment = 15<<3 | 3
		mask    = 1<<12 - 1
	)
	if !c.wanted(n, bpf.R0) {
		return
	}
	c.constant(c.use(t1), segment)
	c.constant(c.use(t0), 0)
	c.ins(4, 0x0f03, t0, inReg(t1)) // lsl: leaves 0 where there is no such segment
	c.aluImm(4, opAnd, inReg(t0), mask)
	c.answer(n, t0)
}

// reserve generates a writer's steps up to its own header, as program's description of
// rings lists them. t0 holds the head, t1 its place in the ring, t2 is scratch.
func (c *compiler) reserve(n int, h *program.HelperCall) {
	ring, size, need := c.env.Maps[h.Map], int32(c.Maps[h.Map].Size), int32(program.RecordLen(h.Size))
	head, data := global(ring.Add(program.RingHead)), global(ring.Add(program.RingData))
	again, pad, full, header, done := c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel()
	c.load(8, c.use(t0), head)
	c.mark(again)
	c.ins(4, 0x8b, c.use(t1), inReg(t0))
	c.aluImm(4, opAnd, inReg(t1), size-1)
	c.ins(4, 0x8d, c.use(t2), inMem(t1, need))
	c.aluImm(4, opCmp, inReg(t2), size)
	c.jumpIf(amd64.CondA, pad)
	c.advance(ring, size, inMem(t0, need), again, full)
	c.lea(t2, data)
	c.lea(c.record, indexed(t2, t1).plus(program.RecordHeader))
	c.mark(header)
	c.storeImm(4, inMem(c.record, -8), need|program.StateBusy)
	c.storeImm(4, inMem(c.record, -4), int32(c.ID))
	c.mark(done)
	c.answer(n, c.record)
	c.later(func() {
		c.mark(pad)
		c.constant(t2, int64(size))
		c.alu(4, opSub, inReg(t2), t1)
		c.advance(ring, size, indexed(t0, t2).plus(need), again, full)
		c.ins(4, 0x83, opOr, inReg(t2), program.StatePad|program.StateDone)
		c.lea(c.record, data)
		c.store(8, indexed(c.record, t1), t2)
		c.aluImm(8, opAdd, inReg(c.record), program.RecordHeader)
		c.jump(header)
		c.mark(full)
		c.count(global(c.env.Maps[h.Lost]))
		c.constant(c.record, 0)
		c.jump(done)
	})
}

// advance replaces the head, t0, by next, if the ring has room for that. The head may
// be older than the tail; then it is not the head any more. t1 is kept, and t2 if next needs it.
func (c *compiler) advance(ring arch.Addr, size int32, next place, again, full label) {
	c.lea(c.record, next)
	c.aluFrom(8, opSub, c.record, global(ring.Add(program.RingTail)))
	c.aluImm(8, opCmp, inReg(c.record), size)
	c.jumpIf(amd64.CondG, full)
	c.lea(c.record, next)
	c.lock()
	c.ins(8, 0x0fb1, c.record, global(ring.Add(program.RingHead)))
	c.jumpIf(amd64.CondNE, again)
}

package amd64_test

import (
	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/program"
)

// place is somewhere to write size bytes to: base and offset.
func (g *programGen) place(size int) (base bpf.Register, off int) {
	if g.record >= size && g.rnd.IntN(2) == 0 {
		return bpf.R8, g.rnd.IntN(g.record - size + 1)
	}
	return bpf.R10, -size - g.rnd.IntN(program.StackSize-size+1)
}

func (g *programGen) written(base bpf.Register, off, size int) {
	if base == bpf.R10 {
		g.stack |= (1<<size - 1) << (off + program.StackSize)
	}
}

func (g *programGen) isWritten(base bpf.Register, off, size int) bool {
	bits := uint64(1<<size-1) << (off + program.StackSize)
	return base == bpf.R8 || g.stack&bits == bits
}

func (g *programGen) memory() {
	size := pick(g.rnd, sizes...)
	base, off := g.place(size.Sizeof())
	switch k := g.rnd.IntN(6); {
	case k == 0 && size != bpf.DWord:
		g.emit(bpf.StoreImm(base, int16(off), int64(g.imm()), size))
	case k == 0:
		g.emit(bpf.Instruction{OpCode: bpf.StoreImmOp(size), Dst: base, Offset: int16(off), Constant: int64(g.imm())})
	case k == 1:
		g.emit(bpf.StoreMem(base, int16(off), g.any(), size))
	case k == 2:
		g.emit(bpf.StoreRelease(base, g.any(), size, int16(off)))
	case !g.isWritten(base, off, size.Sizeof()):
		return
	case k == 3:
		g.atomic(base, off)
		return
	default:
		r := bpf.Register(g.rnd.IntN(8))
		switch {
		case k == 4 && size != bpf.DWord:
			g.emit(bpf.LoadMemSX(r, base, int16(off), size))
		case k == 4:
			g.emit(bpf.LoadAcquire(r, base, size, int16(off)))
		default:
			g.emit(bpf.LoadMem(r, base, int16(off), size))
		}
		g.regs |= 1 << r
		return
	}
	g.written(base, off, size.Sizeof())
}

func (g *programGen) atomic(base bpf.Register, off int) {
	size := pick(g.rnd, bpf.Word, bpf.DWord)
	off &^= size.Sizeof() - 1
	if base == bpf.R8 && off+size.Sizeof() > g.record || !g.isWritten(base, off, size.Sizeof()) {
		return
	}
	op := pick(g.rnd, bpf.AddAtomic, bpf.FetchAdd, bpf.AndAtomic, bpf.FetchAnd, bpf.OrAtomic, bpf.FetchOr, bpf.XorAtomic, bpf.FetchXor, bpf.Xchg, bpf.CmpXchg)
	if op == bpf.CmpXchg && g.regs&1 == 0 {
		g.emit(bpf.Mov.Imm(bpf.R0, g.imm()))
		g.regs |= 1
	}
	g.emit(op.Mem(base, g.any(), size, int16(off)))
}

// set puts a number into r, at times one that is known.
func (g *programGen) set(r bpf.Register) {
	if g.rnd.IntN(3) == 0 {
		g.emit(bpf.LoadImm(r, g.number(), bpf.DWord))
	} else if src := g.any(); src != r {
		g.emit(bpf.Mov.Reg(r, src))
	}
	g.regs |= 1 << r
}

// point puts an address of the target into r, mostly a good one.
func (g *programGen) point(r bpf.Register) {
	switch g.rnd.IntN(5) {
	case 0:
		g.emit(bpf.LoadImm(r, dataAt+int64(g.rnd.IntN(area)), bpf.DWord))
	case 1:
		g.emit(bpf.LoadImm(r, dataAt+area-int64(g.rnd.IntN(100)), bpf.DWord))
	case 2:
		g.set(r)
		return
	default: // a register of the target
		g.emit(bpf.LoadMem(r, bpf.R9, int16(8*g.rnd.IntN(16)), bpf.DWord))
	}
	g.regs |= 1 << r
}

func (g *programGen) call() {
	call := func(fn bpf.BuiltinFunc) {
		g.emit(fn.Call())
		g.regs &^= 0x3e
		h, _ := program.HelperFor(fn)
		if g.regs &^= 1; h.Result {
			g.regs |= 1
		}
	}
	arg := func(r bpf.Register, m int) { g.emit(bpf.LoadMapPtr(r, m)); g.regs &^= 1 << r }
	switch g.rnd.IntN(9) {
	case 8:
		arg(bpf.R1, mapState)
		g.emit(bpf.Mov.Imm(bpf.R2, int32(g.rnd.IntN(genMaps[mapState].Cells))))
		call(program.FetchAdd)
	case 0:
		arg(bpf.R1, pick(g.rnd, mapCount, mapCountSharded))
		call(program.Count)
	case 1:
		g.set(bpf.R2)
		arg(bpf.R1, pick(g.rnd, mapLog2, mapLog2Sharded))
		call(program.HistLog2)
	case 2:
		g.set(bpf.R2)
		arg(bpf.R1, pick(g.rnd, mapLinear, mapLinearPow, mapLinearWide))
		call(program.HistLinear)
	case 3:
		call(program.Time)
		g.emit(bpf.RSh.Imm(bpf.R0, 63))
	case 4:
		call(program.Thread)
	case 5:
		call(program.Processor)
		g.emit(bpf.RSh.Imm(bpf.R0, 12))
	default:
		g.reading(call)
	}
}

func (g *programGen) reading(call func(bpf.BuiltinFunc)) {
	fn := pick(g.rnd, program.Read, program.ReadN, program.ReadString)
	size := 1 + g.rnd.IntN(program.StackSize)
	if g.record > 64 && g.rnd.IntN(2) == 0 {
		size = 1 + g.rnd.IntN(g.record)
	}
	base, off := bpf.R8, 0
	if size <= program.StackSize {
		base, off = g.place(size)
	} else {
		off = g.rnd.IntN(g.record - size + 1)
	}
	g.point(bpf.R3)
	if fn == program.ReadN {
		g.set(bpf.R4)
		if g.rnd.IntN(2) == 0 {
			g.emit(bpf.And.Imm(bpf.R4, 127))
		}
	}
	g.emit(bpf.Mov.Reg(bpf.R1, base))
	g.emit(bpf.Add.Imm(bpf.R1, int32(off)))
	g.emit(bpf.Mov.Imm(bpf.R2, int32(size)))
	call(fn)
	if fn == program.Read {
		g.written(base, off, size)
	}
}

// ring is a record from its reservation to its end.
func (g *programGen) ring() {
	if g.record > 0 || g.depth > 2 {
		return
	}
	g.depth++
	size := 1 + g.rnd.IntN(pick(g.rnd, 16, 100, 800))
	full := g.label()
	g.emit(bpf.LoadMapPtr(bpf.R1, pick(g.rnd, mapRing, mapRingSmall)))
	g.emit(bpf.Mov.Imm(bpf.R2, int32(size)))
	g.emit(bpf.LoadMapPtr(bpf.R3, mapLost))
	g.emit(program.RingReserve.Call())
	g.regs &^= 0x3f
	r := bpf.R8
	if g.rnd.IntN(2) == 0 {
		g.emit(bpf.Mov.Reg(bpf.R8, bpf.R0))
	} else {
		r = bpf.R0
	}
	if g.rnd.IntN(2) == 0 {
		g.emit(bpf.JEq.Imm(r, 0, full))
	} else {
		some := g.label()
		g.emit(bpf.JNE.Imm(r, 0, some))
		g.emit(bpf.Ja.Label(full))
		g.pending = append(g.pending, some)
	}
	if r == bpf.R0 {
		g.emit(bpf.Mov.Reg(bpf.R8, bpf.R0))
	}
	before := *g
	g.record = size
	g.block(1 + g.rnd.IntN(8))
	g.emit(bpf.Mov.Reg(bpf.R1, bpf.R8))
	g.emit(program.RingCommit.Call())
	g.regs &^= 0x3f
	g.record = 0
	g.pending = append(g.pending, full)
	g.regs &= before.regs
	g.stack &= before.stack
	g.depth--
}

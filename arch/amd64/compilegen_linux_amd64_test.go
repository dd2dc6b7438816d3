package amd64_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// programGen makes random programs that Check accepts. r0 to r7 are numbers, r8 is the
// record, r9 the context.
type programGen struct {
	rnd     *rand.Rand
	insns   bpf.Instructions
	regs    uint16 // registers that are set
	stack   uint64 // bytes of the stack that are set, from the lowest
	record  int    // bytes of the record that is held, 0 if none is
	labels  int
	pending []string // labels of the next instruction
	depth   int
	decides bool // programs that decide have numbers in r0 at their ends
}

// The maps that programs have.
const (
	mapCount = iota
	mapCountSharded
	mapLog2
	mapLog2Sharded
	mapLinear
	mapLinearPow
	mapLinearWide
	mapRing
	mapRingSmall
	mapLost
	mapState
)

var genMaps = []program.Map{
	mapCount:        {Kind: program.Counter},
	mapCountSharded: {Kind: program.Counter, Shards: 4},
	mapLog2:         {Kind: program.Log2},
	mapLog2Sharded:  {Kind: program.Log2, Shards: 8},
	mapLinear:       {Kind: program.Linear, Min: -5, Step: 7, Buckets: 12, Shards: 4},
	mapLinearPow:    {Kind: program.Linear, Min: 1000, Step: 16, Buckets: 100},
	mapLinearWide:   {Kind: program.Linear, Min: math.MinInt64 / 2, Step: 1<<60 + 3, Buckets: 4, Shards: 1},
	mapRing:         {Kind: program.Ring, Size: 8192},
	mapRingSmall:    {Kind: program.Ring, Size: 4096},
	mapLost:         {Kind: program.Counter},
	mapState:        {Kind: program.State, Cells: 20},
}

// randomProgram is a program of some n statements.
func randomProgram(rnd *rand.Rand, n int) *program.Program {
	g := &programGen{rnd: rnd, regs: 1 << 9, stack: 0, decides: rnd.IntN(2) == 0}
	g.emit(bpf.Mov.Reg(bpf.R9, bpf.R1))
	for range rnd.IntN(3) {
		g.load()
	}
	g.regs |= 1 << 9
	g.block(n)
	g.exit()
	return &program.Program{Name: "random", ID: rnd.Uint32(), Decides: g.decides, Regs: (*amd64.Regs)(nil).Names(), Insns: g.insns, Maps: genMaps}
}

// exit ends the program.
func (g *programGen) exit() {
	if g.decides && (g.regs&1 == 0 || g.rnd.IntN(2) == 0) {
		g.set(bpf.R0)
	}
	if g.decides && g.regs&1 == 0 {
		g.emit(bpf.Mov.Imm(bpf.R0, int32(g.rnd.IntN(2))))
	}
	g.emit(bpf.Return())
}

func (g *programGen) emit(i bpf.Instruction) {
	for n, l := range g.pending {
		if n < len(g.pending)-1 {
			g.insns = append(g.insns, bpf.Mov.Reg(bpf.R9, bpf.R9).WithSymbol(l))
			continue
		}
		i = i.WithSymbol(l)
	}
	g.pending = nil
	g.insns = append(g.insns, i)
}

func (g *programGen) block(n int) {
	for range n {
		switch k := g.rnd.IntN(20); {
		case k < 3:
			g.load()
		case k < 9:
			g.alu()
		case k < 12:
			g.memory()
		case k < 15:
			g.jump()
		case k < 19:
			g.call()
		default:
			g.ring()
		}
	}
}

// number is a number that is interesting.
func (g *programGen) number() int64 {
	switch g.rnd.IntN(6) {
	case 0:
		return int64(g.rnd.IntN(8)) - 4
	case 1:
		return pick[int64](g.rnd, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, math.MaxUint32, 1<<31, 127, 128, -128, -129)
	case 2:
		return dataAt + int64(g.rnd.IntN(0x10000))
	case 3:
		return int64(g.rnd.Uint64() >> g.rnd.IntN(64))
	}
	return int64(int32(g.rnd.Uint32()))
}

func (g *programGen) imm() int32 { return int32(g.number()) }

// any is a register that is set; if none is, it becomes so.
func (g *programGen) any() bpf.Register {
	for range 20 {
		if r := bpf.Register(g.rnd.IntN(8)); g.regs>>r&1 != 0 {
			return r
		}
	}
	return g.fresh()
}

func (g *programGen) fresh() bpf.Register {
	r := bpf.Register(g.rnd.IntN(8))
	switch {
	case g.rnd.IntN(2) == 0:
		g.emit(bpf.LoadImm(r, g.number(), bpf.DWord))
	case g.rnd.IntN(2) == 0:
		g.emit(bpf.Mov.Imm(r, g.imm()))
	default:
		g.emit(bpf.Mov.Imm32(r, g.imm()))
	}
	g.regs |= 1 << r
	return r
}

var sizes = []bpf.Size{bpf.Byte, bpf.Half, bpf.Word, bpf.DWord}

// load reads a register of the context.
func (g *programGen) load() {
	names := (*amd64.Regs)(nil).Names()
	size, r := pick(g.rnd, append(sizes, bpf.DWord, bpf.DWord, bpf.DWord)...), bpf.Register(g.rnd.IntN(8))
	off := int16(8*g.rnd.IntN(len(names)) + size.Sizeof()*g.rnd.IntN(8/size.Sizeof()))
	switch {
	case size != bpf.DWord && g.rnd.IntN(3) == 0:
		g.emit(bpf.LoadMemSX(r, bpf.R9, off, size))
	case g.rnd.IntN(10) == 0:
		g.emit(bpf.LoadAcquire(r, bpf.R9, size, off))
	default:
		g.emit(bpf.LoadMem(r, bpf.R9, off, size))
	}
	g.regs |= 1 << r
}

var aluOps = []bpf.ALUOp{bpf.Add, bpf.Sub, bpf.Mul, bpf.Div, bpf.SDiv, bpf.Or, bpf.And, bpf.LSh, bpf.RSh, bpf.Neg, bpf.Mod, bpf.SMod, bpf.Xor,
	bpf.Mov, bpf.ArSh, bpf.MovSX8, bpf.MovSX16, bpf.MovSX32, bpf.Swap}

func (g *programGen) alu() {
	op, dst := pick(g.rnd, aluOps...), g.any()
	wide := g.rnd.IntN(2) == 0
	switch op {
	case bpf.Neg:
		i := bpf.Neg.Imm(dst, 0)
		if !wide {
			i = bpf.Neg.Imm32(dst, 0)
		}
		g.emit(i)
		return
	case bpf.Swap:
		size := pick(g.rnd, bpf.Half, bpf.Word, bpf.DWord)
		g.emit(pick(g.rnd, bpf.BSwap(dst, size), bpf.HostTo(bpf.LE, dst, size), bpf.HostTo(bpf.BE, dst, size)))
		return
	case bpf.Mov, bpf.MovSX8, bpf.MovSX16, bpf.MovSX32:
		src := g.any()
		dst = bpf.Register(g.rnd.IntN(8))
		g.regs |= 1 << dst
		if !wide && op != bpf.MovSX32 {
			g.emit(op.Reg32(dst, src))
			return
		}
		g.emit(op.Reg(dst, src))
		return
	}
	imm := g.imm()
	if op == bpf.LSh || op == bpf.RSh || op == bpf.ArSh {
		imm = int32(g.rnd.IntN(32))
	}
	if (op&0xff == bpf.Div || op&0xff == bpf.Mod) && imm == 0 {
		imm = -1
	}
	switch reg := g.rnd.IntN(2) == 0; {
	case reg && wide:
		g.emit(op.Reg(dst, g.any()))
	case reg:
		g.emit(op.Reg32(dst, g.any()))
	case wide:
		g.emit(op.Imm(dst, imm))
	default:
		g.emit(op.Imm32(dst, imm))
	}
}

func (g *programGen) label() string {
	g.labels++
	return fmt.Sprint("l", g.labels)
}

var jumpOps = []bpf.JumpOp{bpf.JEq, bpf.JGT, bpf.JGE, bpf.JSet, bpf.JNE, bpf.JSGT, bpf.JSGE, bpf.JLT, bpf.JLE, bpf.JSLT, bpf.JSLE}

// jump is a condition around a block, sometimes with an alternative.
func (g *programGen) jump() {
	if g.depth > 2 {
		return
	}
	g.depth++
	defer func() { g.depth-- }()
	op, to, dst := pick(g.rnd, jumpOps...), g.label(), g.any()
	switch g.rnd.IntN(4) {
	case 0:
		g.emit(op.Imm(dst, g.imm(), to))
	case 1:
		g.emit(op.Imm32(dst, g.imm(), to))
	case 2:
		g.emit(op.Reg(dst, g.any(), to))
	default:
		g.emit(op.Reg32(dst, g.any(), to))
	}
	before := *g
	g.block(1 + g.rnd.IntN(5))
	end := to
	if g.record == 0 && g.rnd.IntN(8) == 0 {
		g.exit()
		g.regs, g.stack = before.regs, before.stack
	} else if g.rnd.IntN(2) == 0 {
		end = g.label()
		jump := bpf.Ja.Label(end)
		if g.rnd.IntN(2) == 0 {
			jump = bpf.LongJump(end)
		}
		g.emit(jump)
		then := *g
		g.regs, g.stack, g.pending = before.regs, before.stack, append(g.pending, to)
		g.block(1 + g.rnd.IntN(5))
		before.regs, before.stack = then.regs, then.stack
	}
	g.pending = append(g.pending, end)
	g.regs &= before.regs
	g.stack &= before.stack
}

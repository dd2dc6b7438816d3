package amd64_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/program"
)

// agree compares p some times.
func (b *bench) agree(t *testing.T, times int, insns bpf.Instructions) {
	t.Helper()
	p := &program.Program{Name: "corner", ID: 5, Regs: registerNames, Insns: insns, Maps: genMaps}
	c, err := program.Check(p)
	if err != nil {
		t.Fatalf("%v\n%s", err, listing(p))
	}
	for range times {
		if err := b.compare(c); err != nil && !errors.Is(err, errGiveUp) {
			t.Fatalf("%v\n%s", err, listing(p))
		}
	}
}

// recording is a record of the 8-byte words that body leaves in r8; the context is r9.
func recording(words int, body ...bpf.Instruction) bpf.Instructions {
	insns := bpf.Instructions{
		bpf.Mov.Reg(bpf.R9, bpf.R1),
		bpf.LoadMapPtr(bpf.R1, mapRing), bpf.Mov.Imm(bpf.R2, int32(8*words)), bpf.LoadMapPtr(bpf.R3, mapLost), program.RingReserve.Call(),
		bpf.JEq.Imm(bpf.R0, 0, "full"), bpf.Mov.Reg(bpf.R8, bpf.R0),
	}
	insns = append(insns, body...)
	return append(insns, bpf.Mov.Reg(bpf.R1, bpf.R8), program.RingCommit.Call(), bpf.Return().WithSymbol("full"))
}

// numbers are where arithmetic is special.
var numbers = []int64{0, 1, -1, -2, 31, 63, 64, 128, 32768, math.MaxInt32, math.MinInt32, 1 << 32, math.MaxInt64, math.MinInt64, 0x123456789abcdef}

// loadNumber is known or not when the program is compiled, as how says.
func loadNumber(r bpf.Register, n int64, how int) bpf.Instructions {
	list := bpf.Instructions{bpf.LoadImm(r, n, bpf.DWord)}
	if how != 0 { // orig_rax is −1; nothing is known of half of it, shifted
		list = append(list, bpf.LoadMem(bpf.R7, bpf.R9, 0, bpf.Byte), bpf.And.Imm(bpf.R7, 0), bpf.Xor.Reg(r, bpf.R7))
	}
	return list
}

func TestCompiledArithmeticWhereItIsSpecial(t *testing.T) {
	b := newBench(t, rand.New(rand.NewPCG(1, 2)))
	for _, x := range numbers {
		for _, y := range numbers {
			how := b.rnd.IntN(4)
			var body bpf.Instructions
			words := 0
			result := func(op bpf.Instruction) {
				body = append(body, loadNumber(bpf.R2, x, how&1)...)
				body = append(body, loadNumber(bpf.R3, y, how&2)...)
				body = append(body, op, bpf.StoreMem(bpf.R8, int16(8*words), bpf.R2, bpf.DWord))
				words++
			}
			for _, op := range aluOps {
				switch op {
				case bpf.Neg:
					result(op.Imm(bpf.R2, 0))
					result(op.Imm32(bpf.R2, 0))
				case bpf.Swap:
					for _, size := range []bpf.Size{bpf.Half, bpf.Word, bpf.DWord} {
						result(bpf.BSwap(bpf.R2, size))
						result(bpf.HostTo(bpf.LE, bpf.R2, size))
						result(bpf.HostTo(bpf.BE, bpf.R2, size))
					}
				case bpf.MovSX32:
					result(op.Reg(bpf.R2, bpf.R3))
				default:
					result(op.Reg(bpf.R2, bpf.R3))
					result(op.Reg32(bpf.R2, bpf.R3))
				}
			}
			b.agree(t, 1, recording(words, body...))
		}
	}
}

func TestCompiledComparisonsWhereTheyAreSpecial(t *testing.T) {
	b := newBench(t, rand.New(rand.NewPCG(3, 4)))
	for _, x := range numbers {
		for _, y := range numbers {
			how := b.rnd.IntN(4)
			body := append(loadNumber(bpf.R2, x, how&1), loadNumber(bpf.R3, y, how&2)...)
			body = append(body, bpf.Mov.Imm(bpf.R4, 0))
			for n, op := range jumpOps {
				for i, jump := range []bpf.Instruction{op.Reg(bpf.R2, bpf.R3, ""), op.Reg32(bpf.R2, bpf.R3, ""), op.Imm(bpf.R2, int32(y), ""), op.Imm32(bpf.R2, int32(y), "")} {
					jump.Offset = 1
					body = append(body, jump, bpf.Add.Imm(bpf.R4, 1), bpf.LSh.Imm(bpf.R4, 1))
					if i == 3 && n%4 == 3 || n == len(jumpOps)-1 && i == 3 {
						body = append(body, bpf.StoreMem(bpf.R8, int16(8*(n/4)), bpf.R4, bpf.DWord), bpf.Mov.Imm(bpf.R4, 0))
					}
				}
			}
			b.agree(t, 1, recording(3, body...))
		}
	}
}

func TestCompiledProgramsInRareCases(t *testing.T) {
	b := newBench(t, rand.New(rand.NewPCG(5, 6)))
	reserve := func(ring int) bpf.Instructions {
		return bpf.Instructions{bpf.LoadMapPtr(bpf.R1, ring), bpf.Mov.Imm(bpf.R2, 600), bpf.LoadMapPtr(bpf.R3, mapLost), program.RingReserve.Call()}
	}
	concat := func(parts ...bpf.Instructions) (all bpf.Instructions) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, insns := range map[string]bpf.Instructions{
		"a second record after one that was refused, whose 0 is kept": concat(
			reserve(mapRingSmall),
			bpf.Instructions{bpf.Mov.Reg(bpf.R6, bpf.R0), bpf.JNE.Imm(bpf.R0, 0, "some")}, reserve(mapRing),
			bpf.Instructions{bpf.JEq.Imm(bpf.R0, 0, "end"), bpf.StoreMem(bpf.R0, 8, bpf.R6, bpf.DWord),
				bpf.Mov.Reg(bpf.R1, bpf.R0).WithSymbol("some"), program.RingCommit.Call(), bpf.Return().WithSymbol("end")}),
		"compare and exchange where the upper half matters": recording(4,
			bpf.LoadImm(bpf.R0, 0x1234567800000007, bpf.DWord), bpf.StoreImm(bpf.R8, 0, 7, bpf.Word), bpf.Mov.Imm(bpf.R2, 9),
			bpf.CmpXchg.Mem(bpf.R8, bpf.R2, bpf.Word, 0), bpf.StoreMem(bpf.R8, 8, bpf.R0, bpf.DWord),
			bpf.LoadImm(bpf.R0, 0x1234567800000007, bpf.DWord), bpf.CmpXchg.Mem(bpf.R8, bpf.R2, bpf.Word, 0), bpf.StoreMem(bpf.R8, 16, bpf.R0, bpf.DWord),
			bpf.Xchg.Mem(bpf.R8, bpf.R0, bpf.DWord, 16), bpf.StoreMem(bpf.R8, 24, bpf.R0, bpf.DWord)),
		"everything is read": recording(len(registerNames), everyRegister()...),
		"the last bytes before a hole": recording(20,
			bpf.LoadImm(bpf.R3, dataAt+area-5, bpf.DWord), bpf.Mov.Reg(bpf.R1, bpf.R8), bpf.Mov.Imm(bpf.R2, 5), program.Read.Call(), bpf.StoreMem(bpf.R8, 8, bpf.R0, bpf.DWord),
			bpf.LoadImm(bpf.R3, dataAt+area-5, bpf.DWord), bpf.Mov.Reg(bpf.R1, bpf.R8), bpf.Add.Imm(bpf.R1, 16), bpf.Mov.Imm(bpf.R2, 6), program.Read.Call(), bpf.StoreMem(bpf.R8, 24, bpf.R0, bpf.DWord),
			bpf.LoadImm(bpf.R3, dataAt+area-5, bpf.DWord), bpf.Mov.Reg(bpf.R1, bpf.R8), bpf.Add.Imm(bpf.R1, 32), bpf.Mov.Imm(bpf.R2, 64), bpf.Mov.Imm(bpf.R4, 5), program.ReadN.Call(), bpf.StoreMem(bpf.R8, 96, bpf.R0, bpf.DWord),
			bpf.LoadImm(bpf.R3, dataAt+area-5, bpf.DWord), bpf.Mov.Reg(bpf.R1, bpf.R8), bpf.Add.Imm(bpf.R1, 104), bpf.Mov.Imm(bpf.R2, 6), program.ReadString.Call(), bpf.StoreMem(bpf.R8, 112, bpf.R0, bpf.DWord)),
		"a record that no register is left for": concat(bpf.Instructions{bpf.Mov.Reg(bpf.R9, bpf.R1)}, everyNumber(), bpf.Instructions{bpf.Return()}),
	} {
		t.Log(name) // not a test of its own: a traced process obeys one thread
		b.agree(t, 100, insns)
	}
}

// everyRegister writes the whole context into the record.
func everyRegister() (list bpf.Instructions) {
	for n := range registerNames {
		list = append(list, bpf.LoadMem(bpf.R2, bpf.R9, int16(8*n), bpf.DWord), bpf.StoreMem(bpf.R8, int16(8*n), bpf.R2, bpf.DWord))
	}
	return list
}

// everyNumber keeps ten numbers that depend on the target's registers, and adds all of them up.
func everyNumber() (list bpf.Instructions) {
	for r := range bpf.Register(9) {
		list = append(list, bpf.LoadMem(r, bpf.R9, int16(8*r), bpf.DWord), bpf.Add.Imm(r, int32(r)+1))
	}
	list = append(list, bpf.LoadMem(bpf.R9, bpf.R9, 8*10, bpf.DWord), bpf.Div.Reg(bpf.R9, bpf.R8), bpf.LSh.Reg(bpf.R7, bpf.R6))
	for r := range bpf.Register(9) {
		list = append(list, bpf.Xor.Reg(bpf.R9, r))
	}
	return append(list, bpf.Mov.Reg(bpf.R2, bpf.R9), bpf.LoadMapPtr(bpf.R1, mapLog2Sharded), program.HistLog2.Call())
}

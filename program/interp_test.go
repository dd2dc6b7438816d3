package program

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// aluCases are a, b and what the operation makes of them in 64 and in 32 bits.
var aluCases = []struct {
	op       asm.ALUOp
	a, b     int64
	w64, w32 uint64
}{
	{asm.Add, -1, 2, 1, 1},
	{asm.Add, 1<<32 - 1, 1, 1 << 32, 0},
	{asm.Sub, 1, 2, 1<<64 - 1, 1<<32 - 1},
	{asm.Mul, 1 << 31, 6, 3 << 32, 0},
	{asm.Mul, -3, 5, 1<<64 - 15, 1<<32 - 15},
	{asm.Div, -1, 2, 1<<63 - 1, 1<<31 - 1},
	{asm.Div, 7, 0, 0, 0},
	{asm.Div, 7, 1 << 32, 0, 0},
	{asm.SDiv, -7, 2, 1<<64 - 3, 1<<32 - 3},
	{asm.SDiv, -7, 0, 0, 0},
	{asm.SDiv, -1 << 63, -1, 1 << 63, 0},
	{asm.SDiv, -1 << 31, -1, 1 << 31, 1 << 31},
	{asm.Mod, -1, 10, 5, 5},
	{asm.Mod, -7, 0, 1<<64 - 7, 1<<32 - 7},
	{asm.Mod, 7 | 1<<40, 0, 7 | 1<<40, 7},
	{asm.SMod, -7, 3, 1<<64 - 1, 1<<32 - 1},
	{asm.SMod, 7, -3, 1, 1},
	{asm.SMod, -7, 0, 1<<64 - 7, 1<<32 - 7},
	{asm.SMod, -1 << 63, -1, 0, 0},
	{asm.SMod, -1 << 31, -1, 0, 0},
	{asm.Or, 1 << 40, 3, 1<<40 | 3, 3},
	{asm.And, -1, 0xff << 28, 0xff << 28, 0xf << 28},
	{asm.Xor, -1, 1, 1<<64 - 2, 1<<32 - 2},
	{asm.LSh, 1, 33, 1 << 33, 2},
	{asm.LSh, 1, 65, 2, 2},
	{asm.RSh, -1, 4, 1<<60 - 1, 1<<28 - 1},
	{asm.ArSh, -16, 2, 1<<64 - 4, 1<<32 - 4},
	{asm.ArSh, 1 << 31, 31, 1, 1<<32 - 1},
	{asm.Mov, 0, -2, 1<<64 - 2, 1<<32 - 2},
	{asm.MovSX8, 0, 0x1ff, 1<<64 - 1, 1<<32 - 1},
	{asm.MovSX16, 0, 0x18000, 1<<64 - 0x8000, 1<<32 - 0x8000},
}

func TestArithmetic(t *testing.T) {
	for _, c := range aluCases {
		for _, way := range []struct {
			name string
			ins  asm.Instruction
			want uint64
			fits bool
		}{
			{"64", c.op.Reg(asm.R0, asm.R2), c.w64, true},
			{"32", c.op.Reg32(asm.R0, asm.R2), c.w32, true},
			{"64 imm", c.op.Imm(asm.R0, int32(c.b)), c.w64, immediate(c.op, c.b, 64)},
			{"32 imm", c.op.Imm32(asm.R0, int32(c.b)), c.w32, immediate(c.op, c.b, 32)},
		} {
			if !way.fits {
				continue
			}
			got := result(t, asm.LoadImm(asm.R0, c.a, asm.DWord), asm.LoadImm(asm.R2, c.b, asm.DWord), way.ins)
			if got != way.want {
				t.Errorf("%s %s: %#x, %#x: got %#x, want %#x", c.op, way.name, c.a, c.b, got, way.want)
			}
		}
	}
}

// immediate reports whether an instruction may have b as its immediate operand.
func immediate(op asm.ALUOp, b int64, bits int64) bool {
	switch op {
	case asm.MovSX8, asm.MovSX16:
		return false
	case asm.LSh, asm.RSh, asm.ArSh:
		return b >= 0 && b < bits
	case asm.Div, asm.Mod, asm.SDiv, asm.SMod:
		return b == int64(int32(b)) && b != 0
	}
	return b == int64(int32(b))
}

func TestUnaryOperations(t *testing.T) {
	const v = 0x8122_3344_85f6_c788
	for _, c := range []struct {
		name string
		ins  asm.Instruction
		want uint64
	}{
		{"neg", asm.Neg.Imm(asm.R0, 0), 0x7edd_ccbb_7a09_3878},
		{"neg32", asm.Neg.Imm32(asm.R0, 0), 0x7a09_3878},
		{"be16", asm.HostTo(asm.BE, asm.R0, asm.Half), 0x88c7},
		{"be32", asm.HostTo(asm.BE, asm.R0, asm.Word), 0x88c7_f685},
		{"be64", asm.HostTo(asm.BE, asm.R0, asm.DWord), 0x88c7_f685_4433_2281},
		{"le16", asm.HostTo(asm.LE, asm.R0, asm.Half), 0xc788},
		{"le32", asm.HostTo(asm.LE, asm.R0, asm.Word), 0x85f6_c788},
		{"le64", asm.HostTo(asm.LE, asm.R0, asm.DWord), v},
		{"bswap16", asm.BSwap(asm.R0, asm.Half), 0x88c7},
		{"bswap64", asm.BSwap(asm.R0, asm.DWord), 0x88c7_f685_4433_2281},
		{"movsx32", asm.MovSX32.Reg(asm.R0, asm.R0), 0xffff_ffff_85f6_c788},
	} {
		n := uint64(v)
		if got := result(t, asm.LoadImm(asm.R0, int64(n), asm.DWord), c.ins); got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.name, got, c.want)
		}
	}
}

func TestJumps(t *testing.T) {
	const low = int64(1) << 40 // what 32-bit comparisons do not see
	for _, c := range []struct {
		op       asm.JumpOp
		a, b     int64
		w64, w32 bool
	}{
		{asm.JEq, 5, 5, true, true}, {asm.JEq, 5 | low, 5, false, true}, {asm.JEq, -1, -1, true, true},
		{asm.JNE, 5, 5, false, false}, {asm.JNE, 5 | low, 5, true, false},
		{asm.JGT, -1, 1, true, true}, {asm.JGT, 1, 1, false, false}, {asm.JGT, low, 1, true, false},
		{asm.JGE, 1, 1, true, true}, {asm.JGE, 1, -1, false, false},
		{asm.JLT, 1, -1, true, true}, {asm.JLT, low, 1, false, true},
		{asm.JLE, 1, 1, true, true}, {asm.JLE, -1, 1, false, false},
		{asm.JSGT, -1, 1, false, false}, {asm.JSGT, 1 << 31, 1, true, false},
		{asm.JSGE, -1, -1, true, true}, {asm.JSGE, -2, -1, false, false},
		{asm.JSLT, -1, 1, true, true}, {asm.JSLT, 1 << 31, 1, false, true},
		{asm.JSLE, -1, -1, true, true}, {asm.JSLE, 1, -1, false, false},
		{asm.JSet, 6, 2, true, true}, {asm.JSet, 5, 2, false, false}, {asm.JSet, low, -1, true, false},
	} {
		for _, way := range []struct {
			name string
			ins  asm.Instruction
			want bool
		}{
			{"64", c.op.Reg(asm.R2, asm.R3, "l"), c.w64},
			{"32", c.op.Reg32(asm.R2, asm.R3, "l"), c.w32},
			{"64 imm", c.op.Imm(asm.R2, int32(c.b), "l"), c.w64},
			{"32 imm", c.op.Imm32(asm.R2, int32(c.b), "l"), c.w32},
		} {
			got := result(t, asm.LoadImm(asm.R2, c.a, asm.DWord), asm.LoadImm(asm.R3, c.b, asm.DWord),
				asm.Mov.Imm(asm.R0, 1), way.ins, asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R4, 0).WithSymbol("l"))
			if got == 1 != way.want {
				t.Errorf("%s %s %#x, %#x: taken %v", c.op, way.name, c.a, c.b, got == 1)
			}
		}
	}
}

func TestMemoryInstructions(t *testing.T) {
	fill := asm.LoadImm(asm.R2, 0x1122_3344_8566_7788, asm.DWord)
	store := asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord)
	load := asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord)
	five := asm.Mov.Imm(asm.R3, 5)
	for _, c := range []struct {
		name  string
		insns []asm.Instruction
		want  uint64
	}{
		{"byte", []asm.Instruction{asm.LoadMem(asm.R0, asm.R10, -5, asm.Byte)}, 0x85},
		{"half", []asm.Instruction{asm.LoadMem(asm.R0, asm.R10, -8, asm.Half)}, 0x7788},
		{"word, signed", []asm.Instruction{asm.LoadMemSX(asm.R0, asm.R10, -8, asm.Word)}, 0xffff_ffff_8566_7788},
		{"byte, signed", []asm.Instruction{asm.LoadMemSX(asm.R0, asm.R10, -8, asm.Byte)}, 0xffff_ffff_ffff_ff88},
		{"store half", []asm.Instruction{asm.StoreMem(asm.R10, -7, asm.R2, asm.Half), load}, 0x1122_3344_8577_8888},
		{"store a number", []asm.Instruction{asm.StoreImm(asm.R10, -4, -2, asm.Word), load}, 0xffff_fffe_8566_7788},
		{"store 8 bytes", []asm.Instruction{{OpCode: asm.StoreImmOp(asm.DWord), Dst: asm.R10, Offset: -8, Constant: -2}, load}, 1<<64 - 2},
		{"add", []asm.Instruction{five, asm.AddAtomic.Mem(asm.R10, asm.R3, asm.Word, -8), load}, 0x1122_3344_8566_778d},
		{"fetch and or", []asm.Instruction{five, asm.FetchOr.Mem(asm.R10, asm.R3, asm.Word, -4), asm.Mov.Reg(asm.R0, asm.R3)}, 0x1122_3344},
		{"and", []asm.Instruction{five, asm.AndAtomic.Mem(asm.R10, asm.R3, asm.DWord, -8), load}, 0},
		{"xor", []asm.Instruction{five, asm.FetchXor.Mem(asm.R10, asm.R3, asm.DWord, -8), load}, 0x1122_3344_8566_778d},
		{"xchg", []asm.Instruction{five, asm.Xchg.Mem(asm.R10, asm.R3, asm.DWord, -8), load, asm.Add.Reg(asm.R0, asm.R3)}, 0x1122_3344_8566_778d},
		{"cmpxchg that differs", []asm.Instruction{five, asm.Mov.Imm(asm.R0, 1), asm.CmpXchg.Mem(asm.R10, asm.R3, asm.Word, -8)}, 0x8566_7788},
		{"cmpxchg that agrees", []asm.Instruction{five, asm.LoadImm(asm.R0, 0xff_8566_7788, asm.DWord), asm.CmpXchg.Mem(asm.R10, asm.R3, asm.Word, -8), load}, 0x1122_3344_0000_0005},
		{"load acquire", []asm.Instruction{asm.LoadAcquire(asm.R0, asm.R10, asm.Word, -4)}, 0x1122_3344},
		{"store release", []asm.Instruction{five, asm.StoreRelease(asm.R10, asm.R3, asm.Half, -8), load}, 0x1122_3344_8566_0005},
		{"context", []asm.Instruction{asm.LoadMem(asm.R0, asm.R6, 16, asm.DWord)}, 3},
		{"the high half of a register", []asm.Instruction{asm.LoadMem(asm.R0, asm.R6, 20, asm.Word)}, 0},
	} {
		insns := append([]asm.Instruction{asm.Mov.Reg(asm.R6, asm.R1), fill, store}, c.insns...)
		if got := result(t, insns...); got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.name, got, c.want)
		}
	}
}

func TestReadsOfTargetMemory(t *testing.T) {
	long := make([]byte, 3*page)
	for i := range long {
		long[i] = 'x'
	}
	mem := memory{0x1000: []byte("hello\x00more"), 0x5000: long, 0xfff0: []byte("0123456789abcdef")}
	for _, c := range []struct {
		fn       asm.BuiltinFunc
		max      int32
		addr, n  int64
		r0       int64
		contents string
	}{
		{Read, 4, 0x1000, 0, 0, "hell...."},
		{Read, 8, 0x1007, 0, -Efault, "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{Read, 3, 0, 0, -Efault, "\x00\x00\x00....."},
		{ReadN, 8, 0x1000, 3, 3, "hel....."},
		{ReadN, 4, 0x1000, 300, 4, "hell...."},
		{ReadN, 4, 0x1000, -1, 4, "hell...."},
		{ReadN, 4, 1, 0, 0, "........"},
		{ReadN, 6, 0x1008, 6, -Efault, "\x00\x00\x00\x00\x00\x00.."},
		{ReadString, 8, 0x1000, 0, 6, "hello\x00.."},
		{ReadString, 6, 0x1000, 0, 6, "hello\x00.."},
		{ReadString, 5, 0x1000, 0, 5, "hell\x00..."},
		{ReadString, 1, 0, 0, 1, "\x00......."},
		{ReadString, 8, 0x5000 + page - 3, 0, 8, "xxxxxxx\x00"},
		{ReadString, 4, 0xfffd, 0, 4, "def\x00...."},
		{ReadString, 5, 0xfffd, 0, -Efault, "\x00\x00\x00\x00\x00..."},
		{ReadString, 8, 2, 0, -Efault, "\x00\x00\x00\x00\x00\x00\x00\x00"},
	} {
		name := fmt.Sprintf("%s of %d at %#x", helpers[c.fn-Count].Name, c.max, c.addr)
		dots := int64(0x2e2e2e2e)
		p := &Program{Regs: testRegs, Maps: []Map{{Kind: Ring, Size: MinRingSize}, {Kind: Counter}}, Insns: asm.Instructions{
			asm.LoadMapPtr(asm.R1, 0), asm.Mov.Imm(asm.R2, 16), asm.LoadMapPtr(asm.R3, 1), RingReserve.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.StoreImm(asm.R7, 0, dots, asm.Word), asm.StoreImm(asm.R7, 4, dots, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R2, c.max), asm.LoadImm(asm.R3, c.addr, asm.DWord), asm.LoadImm(asm.R4, c.n, asm.DWord), c.fn.Call(),
			asm.StoreMem(asm.R7, 8, asm.R0, asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R7), RingCommit.Call(),
			exit.WithSymbol("out"),
		}}
		e := env(p, regs{0, 0, 0, 0}, mem)
		run(t, p, e)
		rec := records(t, p.Maps[0], e.Maps[0])[0].Payload
		if got := int64(uintOf(rec[8:])); got != c.r0 || string(rec[:8]) != c.contents {
			t.Errorf("%s: got %d and %q, want %d and %q", name, got, rec[:8], c.r0, c.contents)
		}
	}
}

func TestRunRefusesAnEnvironmentThatDoesNotFit(t *testing.T) {
	p := &Program{Name: "p", Regs: testRegs, Maps: []Map{{Kind: Counter}}, Insns: asm.Instructions{exit}}
	c, err := Check(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(env(p, regs{0, 0, 0, 0}, nil)); err != nil {
		t.Error(err)
	}
	for name, e := range map[string]*Env{
		"no map":      {Regs: regs{0, 0, 0, 0}},
		"a short map": {Regs: regs{0, 0, 0, 0}, Maps: [][]uint64{make([]uint64, 7)}},
	} {
		if c.Run(e) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	q := *p
	q.Regs = []string{"xyz"}
	if c, err = Check(&q); err != nil {
		t.Fatal(err)
	}
	if c.Run(env(&q, regs{0, 0, 0, 0}, nil)) == nil {
		t.Error("an unknown register: no error")
	}
}

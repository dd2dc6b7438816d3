package program

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// reserve8 gets a record of 8 bytes, goes to out without one.
var reserve8 = asm.Instructions{
	asm.LoadMapPtr(asm.R1, 0), asm.Mov.Imm(asm.R2, 8), asm.LoadMapPtr(asm.R3, 1), RingReserve.Call(),
}

var exit = asm.Return()

func with(head asm.Instructions, tail ...asm.Instruction) asm.Instructions {
	return append(append(asm.Instructions{}, head...), tail...)
}

var unsafePrograms = []struct {
	name  string
	insns asm.Instructions
	want  string
}{
	{"nothing", nil, "no instructions"},
	{"no end", asm.Instructions{asm.Mov.Imm(asm.R0, 1)}, "goes on behind its end"},
	{"a loop", asm.Instructions{asm.Mov.Imm(asm.R0, 1).WithSymbol("top"), asm.Ja.Label("top")}, "jumps back"},
	{"a loop to itself", asm.Instructions{asm.Ja.Label("top").WithSymbol("top")}, "jumps back"},
	{"a jump to nowhere", asm.Instructions{asm.Ja.Label("none"), exit}, "no instruction begins"},
	{"a jump into a wide load", asm.Instructions{
		{OpCode: asm.Ja.Op(asm.ImmSource), Offset: 1}, asm.LoadImm(asm.R0, 1<<40, asm.DWord), exit}, "no instruction begins"},
	{"dead code", asm.Instructions{exit, exit}, "never reached"},
	{"a register that is not set", asm.Instructions{asm.Mov.Reg(asm.R0, asm.R2), exit}, "r2 is not set"},
	{"set on one way only", asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.JEq.Imm(asm.R2, 0, "l"), asm.Mov.Imm(asm.R3, 1),
		asm.Mov.Reg(asm.R0, asm.R3).WithSymbol("l"), exit}, "r3 is not set"},
	{"lost in a call", asm.Instructions{Time.Call(), asm.Mov.Reg(asm.R0, asm.R1), exit}, "r1 is not set"},
	{"no result", asm.Instructions{asm.LoadMapPtr(asm.R1, 1), Count.Call(), asm.Mov.Reg(asm.R2, asm.R0), exit}, "rfp is|r0 is not set"},
	{"a store to the context", asm.Instructions{asm.StoreImm(asm.R1, 0, 1, asm.Word), exit}, "context can't be written"},
	{"behind the context", asm.Instructions{asm.LoadMem(asm.R0, asm.R1, 32, asm.DWord), exit}, "outside of the context"},
	{"before the context", asm.Instructions{asm.LoadMem(asm.R0, asm.R1, -8, asm.DWord), exit}, "outside of the context"},
	{"between registers", asm.Instructions{asm.LoadMem(asm.R0, asm.R1, 4, asm.DWord), exit}, "must be aligned"},
	{"a wild load", asm.Instructions{asm.Mov.Imm(asm.R2, 64), asm.LoadMem(asm.R0, asm.R2, 0, asm.DWord), exit}, "not an address of the program"},
	{"a wild store", asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.StoreMem(asm.R2, 0, asm.R2, asm.DWord), exit}, "not an address of the program"},
	{"above the stack", asm.Instructions{asm.StoreImm(asm.R10, 0, 1, asm.Word), exit}, "outside of the stack"},
	{"below the stack", asm.Instructions{asm.StoreImm(asm.R10, -68, 1, asm.Word), exit}, "outside of the stack"},
	{"stack that is not written", asm.Instructions{asm.StoreImm(asm.R10, -8, 1, asm.Word), asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord), exit}, "have not been written"},
	{"a change of r10", asm.Instructions{asm.Mov.Imm(asm.R10, 1), exit}, "r10 can't be changed"},
	{"an address as a number", asm.Instructions{asm.Mul.Imm(asm.R1, 2), exit}, "can't be done with an address"},
	{"half an address", asm.Instructions{asm.Mov.Reg32(asm.R0, asm.R1), exit}, "can't be done with an address"},
	{"an address plus what is not known", asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.Add.Reg(asm.R1, asm.R2), exit}, "can't be done with an address"},
	{"a number plus an address", asm.Instructions{asm.Mov.Imm(asm.R2, 1), asm.Add.Reg(asm.R2, asm.R1), exit}, "is an address"},
	{"a stored address", asm.Instructions{asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord), exit}, "is an address"},
	{"an address compared", asm.Instructions{asm.JEq.Imm(asm.R1, 0, "l"), exit.WithSymbol("l")}, "is an address"},
	{"division by zero", asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Div.Imm(asm.R0, 0), exit}, "division by zero"},
	{"too wide a shift", asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.LSh.Imm32(asm.R0, 32), exit}, "a shift by 32 bits"},
	{"no such helper", asm.Instructions{asm.FnKtimeGetNs.Call(), exit}, "no such helper"},
	{"a function of the program", asm.Instructions{asm.Call.Label("f"), exit, exit.WithSymbol("f")}, "no such helper"},
	{"another kind of map", asm.Instructions{asm.LoadMapPtr(asm.R1, 0), Count.Call(), exit}, "want a counter"},
	{"a map that is not there", asm.Instructions{asm.LoadMapPtr(asm.R1, 5), exit}, "no map 5"},
	{"an unknown size", asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.Mov.Reg(asm.R3, asm.R2), asm.Mov.Reg(asm.R1, asm.R10), Read.Call(), exit}, "must be a constant"},
	{"a read beyond the stack", asm.Instructions{
		asm.Mov.Imm(asm.R3, 1), asm.Mov.Imm(asm.R2, 9), asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -8), Read.Call(), exit}, "outside of the stack"},
	{"a read into the context", asm.Instructions{asm.Mov.Imm(asm.R3, 1), asm.Mov.Imm(asm.R2, 8), Read.Call(), exit}, "in the stack or the record"},
	{"a record that is not looked at", with(reserve8, asm.StoreImm(asm.R0, 0, 1, asm.Word), exit), "may be 0"},
	{"a record at the end", with(reserve8, exit), "not committed"},
	{"a record that is not committed", with(reserve8, asm.JEq.Imm(asm.R0, 0, "l"), asm.StoreImm(asm.R0, 0, 1, asm.Word), exit.WithSymbol("l")), "on one way"},
	{"the record that is not there", with(reserve8, asm.JNE.Imm(asm.R0, 0, "l"), asm.StoreImm(asm.R0, 0, 1, asm.Word), exit, exit.WithSymbol("l")), "not an address"},
	{"behind the record", with(reserve8, asm.JEq.Imm(asm.R0, 0, "l"), asm.StoreImm(asm.R0, 8, 1, asm.Byte), exit.WithSymbol("l")), "outside of the record"},
	{"a record after commit", with(reserve8, asm.JEq.Imm(asm.R0, 0, "l"), asm.Mov.Reg(asm.R7, asm.R0), asm.Mov.Reg(asm.R1, asm.R0), RingCommit.Call(),
		asm.StoreImm(asm.R7, 0, 1, asm.Byte), exit.WithSymbol("l")), "r7 is not set"},
	{"two records", with(with(reserve8, asm.JEq.Imm(asm.R0, 0, "l")), with(reserve8, exit.WithSymbol("l"))...), "has a record already"},
	{"the middle of a record", with(reserve8, asm.JEq.Imm(asm.R0, 0, "l"), asm.Add.Imm(asm.R0, 4), asm.Mov.Reg(asm.R1, asm.R0), RingCommit.Call(), exit.WithSymbol("l")), "address of the record"},
	{"a record too large for its ring", asm.Instructions{
		asm.LoadMapPtr(asm.R1, 0), asm.Mov.Imm(asm.R2, 1024), asm.LoadMapPtr(asm.R3, 1), RingReserve.Call(), exit}, "quarter of the ring"},
	{"unaligned atomic", asm.Instructions{asm.StoreImm(asm.R10, -8, 1, asm.Word), asm.StoreImm(asm.R10, -4, 1, asm.Word), asm.Mov.Imm(asm.R0, 1),
		asm.FetchAdd.Mem(asm.R10, asm.R0, asm.Word, -6), exit}, "must be aligned"},
	{"a cell that is not there", asm.Instructions{asm.LoadMapPtr(asm.R1, 2), asm.Mov.Imm(asm.R2, 3), FetchAdd.Call(), exit}, "no cell 3 of 3"},
	{"an unknown cell", asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.LoadMapPtr(asm.R1, 2), FetchAdd.Call(), exit}, "the cell must be a constant"},
	{"a cell of a counter", asm.Instructions{asm.LoadMapPtr(asm.R1, 1), asm.Mov.Imm(asm.R2, 0), FetchAdd.Call(), exit}, "want a state"},
	{"no opcode", asm.Instructions{{OpCode: asm.InvalidOpCode}, exit}, "no such operation"},
	{"packet access", asm.Instructions{asm.LoadAbs(0, asm.Word), exit}, "no such operation"},
	{"may_goto", asm.Instructions{asm.JCOND.Label("l"), exit.WithSymbol("l")}, "no such operation"},
}

func TestUnsafeProgramsAreRefusedWithTheirReason(t *testing.T) {
	for _, tt := range unsafePrograms {
		t.Run(tt.name, func(t *testing.T) {
			p := &Program{Name: "p", Regs: testRegs, Insns: tt.insns, Maps: []Map{{Kind: Ring, Size: MinRingSize}, {Kind: Counter}, {Kind: State, Cells: 3}}}
			_, err := Check(p)
			if !errors.Is(err, ErrUnsafe) {
				t.Fatalf("error %v", err)
			}
			for _, want := range strings.Split(tt.want, "|") {
				if strings.Contains(err.Error(), want) {
					return
				}
			}
			t.Errorf("error %q does not say %q", err, tt.want)
		})
	}
}

func TestLimitsAreRefused(t *testing.T) {
	ok := asm.Instructions{exit}
	for name, p := range map[string]*Program{
		"instructions":  {Insns: make(asm.Instructions, MaxInsns+1)},
		"maps":          {Insns: ok, Maps: make([]Map, MaxMaps+1)},
		"registers":     {Insns: ok, Regs: make([]string, MaxRegs+1)},
		"shards":        {Insns: ok, Maps: []Map{{Shards: 3}}},
		"many shards":   {Insns: ok, Maps: []Map{{Shards: 2 * MaxShards}}},
		"kind":          {Insns: ok, Maps: []Map{{Kind: 9}}},
		"ring size":     {Insns: ok, Maps: []Map{{Kind: Ring, Size: MinRingSize + 8}}},
		"no cells":      {Insns: ok, Maps: []Map{{Kind: State}}},
		"many cells":    {Insns: ok, Maps: []Map{{Kind: State, Cells: MaxCells + 1}}},
		"two states":    {Insns: ok, Maps: []Map{{Kind: State, Cells: 1}, {Kind: Counter}, {Kind: State, Cells: 1}}},
		"no buckets":    {Insns: ok, Maps: []Map{{Kind: Linear, Step: 1}}},
		"no step":       {Insns: ok, Maps: []Map{{Kind: Linear, Buckets: 1}}},
		"beyond 64 bit": {Insns: ok, Maps: []Map{{Kind: Linear, Buckets: 2, Step: 1 << 62, Min: 1}}},
	} {
		if _, err := Check(p); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// What Check finds out is what compilers rely on.
func TestCheckTellsWhatIsAccessed(t *testing.T) {
	p := &Program{Regs: testRegs, Maps: []Map{{Kind: Ring, Size: MinRingSize}, {Kind: Counter}}, Insns: with(reserve8,
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Add.Imm(asm.R8, 4),
		asm.Mov.Imm(asm.R3, 100), asm.Mov.Imm(asm.R2, 3), asm.Mov.Reg(asm.R1, asm.R8), ReadString.Call(),
		asm.StoreImm(asm.R8, -4, 7, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R8), asm.Sub.Imm(asm.R1, 4), RingCommit.Call(),
		exit.WithSymbol("out"),
	)}
	c, err := Check(p)
	if err != nil {
		t.Fatal(err)
	}
	reserve, read, store, last := c.Code[3].Call, c.Code[10].Call, c.Code[11], c.Code[14].Call
	if reserve.Map != 0 || reserve.Lost != 1 || reserve.Size != 8 || reserve.ResultUnused {
		t.Errorf("reserve: %+v", reserve)
	}
	if read.Dst != InRecord || read.Off != 4 || read.Size != 3 || !read.ResultUnused || read.Map != -1 {
		t.Errorf("read: %+v", read)
	}
	if store.Mem != InRecord || store.Off != 0 {
		t.Errorf("store: %+v", store)
	}
	if last.Func != RingCommit || c.Code[5].Target != 15 {
		t.Errorf("commit: %+v, jump to %d", last, c.Code[5].Target)
	}
	if got := c.Code[4].Live; got != 1<<0|1<<8 {
		t.Errorf("live after the copy: %#x", got)
	}
	if add := c.Code[6]; !add.Ptr || add.PtrMem != InRecord || add.PtrOff != 4 {
		t.Errorf("address: %+v", add)
	}
}

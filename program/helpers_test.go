package program

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch"
)

var testRegs = []string{"ax", "di", "si", "sp"}

// regs is a register set of testRegs, in their order.
type regs []uint64

func (r regs) Get(name string) (uint64, bool) {
	if i := slices.Index(testRegs, name); i >= 0 {
		return r[i], true
	}
	return 0, false
}

// memory is mapped at its key.
type memory map[arch.Addr][]byte

func (m memory) ReadMemory(at arch.Addr, p []byte) error {
	for base, b := range m {
		if at >= base && uint64(at-base)+uint64(len(p)) <= uint64(len(b)) {
			copy(p, b[at-base:])
			return nil
		}
	}
	return &arch.FaultError{Addr: at, Cause: errors.New("not mapped")}
}

// env has fresh maps for p.
func env(p *Program, r regs, m memory) *Env {
	e := &Env{Regs: r, Memory: m, Thread: 77, Time: func() uint64 { return 1234 }, Processor: func() uint64 { return 5 }}
	for _, d := range p.Maps {
		e.Maps = append(e.Maps, make([]uint64, d.Len()/8))
	}
	return e
}

// run checks p and runs it once.
func run(t *testing.T, p *Program, e *Env) {
	t.Helper()
	c, err := Check(p)
	if err != nil {
		t.Fatalf("%v\n%v", err, p.Insns)
	}
	if err := c.Run(e); err != nil {
		t.Fatal(err)
	}
}

// result runs instructions that leave a number in r0, and returns that number.
func result(t *testing.T, insns ...asm.Instruction) uint64 {
	t.Helper()
	const size = 8
	p := &Program{Name: "test", Regs: testRegs, Maps: []Map{{Kind: Ring, Size: MinRingSize}, {Kind: Counter}}}
	p.Insns = slices.Concat(insns, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMapPtr(asm.R1, 0), asm.Mov.Imm(asm.R2, size), asm.LoadMapPtr(asm.R3, 1), RingReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreMem(asm.R0, 0, asm.R6, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R0), RingCommit.Call(),
		asm.Return().WithSymbol("out"),
	})
	e := env(p, regs{1, 2, 3, 0x7000}, nil)
	run(t, p, e)
	all := records(t, p.Maps[0], e.Maps[0])
	if len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
	return uintOf(all[0].Payload)
}

// records reads all that is in a ring.
func records(t *testing.T, m Map, mem []uint64) (all []Record) {
	t.Helper()
	r, err := NewRingReader(m, mem)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(func(rec Record) {
		rec.Payload = slices.Clone(rec.Payload)
		all = append(all, rec)
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

package program

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// FuzzCheck: no program makes Check panic, and none that it accepts makes the interpreter
// panic, go on for ever, or leave a record behind. (The interpreter would panic at an access beyond stack,
// record or context, and at an address used as another.)
func FuzzCheck(f *testing.F) {
	seed := func(insns asm.Instructions) {
		var buf bytes.Buffer
		if err := insns.Marshal(&buf, binary.LittleEndian); err == nil {
			f.Add(buf.Bytes())
		}
	}
	for _, p := range unsafePrograms {
		seed(p.insns)
	}
	p, err := Build("seed", 1, testRegs, All(Compare(Reg("ax"), Less, Const(5)), Not(Compare(Reg("di").Load(0, U16), AnyBit, Const(3)))),
		WriteRecord{Ring: ring, Items: []Item{{Value: Now()}, {Value: Reg("di"), Kind: String, Max: 16}}}, CountHit{})
	if err != nil {
		f.Fatal(err)
	}
	seed(p.Insns)
	f.Fuzz(func(t *testing.T, raw []byte) {
		insns, err := asm.AppendInstructions(nil, bytes.NewReader(raw), binary.LittleEndian, "linux")
		if err != nil {
			return
		}
		p := &Program{Regs: testRegs, Insns: insns, Maps: []Map{
			{Kind: Ring, Size: MinRingSize}, {Kind: Counter}, {Kind: Counter}, {Kind: Log2}, {Kind: Linear, Min: -5, Step: 3, Buckets: 7}}}
		c, err := Check(p)
		if err != nil {
			return
		}
		e := env(p, regs{1, 0x1000, 0x10, spAt}, target)
		if err := c.Run(e); err != nil {
			t.Fatal(err)
		}
		r, err := NewRingReader(p.Maps[0], e.Maps[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(func(Record) {}); err != nil || r.Unread() != 0 {
			t.Fatalf("%d bytes of records are unread, %v", r.Unread(), err)
		}
	})
}

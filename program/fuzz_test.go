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
	if p, err = Decision("seed", testRegs, Compare(Sequence(1).Mixed(7), Below, Const(1<<40))); err != nil {
		f.Fatal(err)
	}
	seed(p.Insns)
	f.Fuzz(func(t *testing.T, raw []byte) {
		insns, err := asm.AppendInstructions(nil, bytes.NewReader(raw), binary.LittleEndian, "linux")
		if err != nil {
			return
		}
		p := &Program{Regs: testRegs, Insns: insns, Decides: len(raw)/8%2 == 0, Maps: []Map{
			{Kind: Ring, Size: MinRingSize}, {Kind: Counter}, {Kind: Counter}, {Kind: Log2}, {Kind: Linear, Min: -5, Step: 3, Buckets: 7}, {Kind: State, Cells: 2}}}
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

// FuzzRingReader: whatever a target has written into a ring, the reader comes to an end, hands on no
// more than there is room for, and works again after Reset.
func FuzzRingReader(f *testing.F) {
	m := Map{Kind: Ring, Size: MinRingSize}
	f.Add(uint64(32), uint64(0), []byte{16, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 18, 0, 0, 0})
	f.Add(uint64(1<<40+64), uint64(1<<40), []byte{18, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, head, tail uint64, data []byte) {
		mem := make([]uint64, m.Len()/8)
		mem[RingHead/8], mem[RingTail/8] = head, tail&^7
		for i := 0; i < len(data) && i < MinRingSize; i += 8 {
			mem[(RingData+i)/8] = uintOf(data[i:min(i+8, len(data))])
		}
		r, err := NewRingReader(m, mem)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		take := func(rec Record) { size += RecordLen(len(rec.Payload)) }
		_, err = r.Read(take)
		if err == nil {
			_, err = r.Abandon(take, func(uint32, bool) {})
		}
		if size > MinRingSize || err == nil && r.Unread() != 0 {
			t.Fatalf("%d bytes of records, %d unread, %v", size, r.Unread(), err)
		}
		r.Reset()
		put(m, mem, 1, 8, 1)
		if n, err := r.Read(func(Record) {}); n != 1 || err != nil {
			t.Fatalf("after Reset: %d records, %v", n, err)
		}
	})
}

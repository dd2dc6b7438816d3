package amd64_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

// sequence decodes all of b, which stands at at.
func sequence(t testing.TB, b []byte, at arch.Addr) (insns []arch.Insn) {
	t.Helper()
	for len(b) > 0 {
		i, err := code.Arch{}.Decode(b, at)
		if err != nil {
			t.Fatal(err)
		}
		insns, b, at = append(insns, i), b[i.Len():], i.End()
	}
	return insns
}

// checkDetour walks through d with the decoder: Locate and Original know every place where
// a thread can stand, and no other one.
func checkDetour(t testing.TB, d *arch.Detour, insns []arch.Insn) {
	t.Helper()
	a := code.Arch{}
	stands := map[arch.Addr]bool{}
	for at := d.Addr; at < d.Range().End; {
		i, err := a.Decode(d.Code[at-d.Addr:], at)
		if err != nil {
			t.Fatalf("%s of detour % x: %v", at, d.Code, err)
		}
		stands[at] = true
		at = i.End()
	}
	if d.Start() != max(d.Body.End, d.Addr) || d.End != insns[len(insns)-1].End() || len(d.Pieces) != len(insns) {
		t.Fatalf("%+v", d)
	}
	if next := d.Switch + 1; d.Switch != 0 && (next+arch.Addr(d.On) != d.Body.Start || next+arch.Addr(d.Ask) != d.Trap ||
		!stands[next+arch.Addr(d.Off)] || d.Code[d.Trap-d.Addr] != 0xcc) {
		t.Fatalf("switch of % x: %+v", d.Code, d)
	}
	for at := d.Addr - 1; at <= d.Range().End; at++ {
		place, orig := d.Locate(at)
		now, pop, ok := d.Original(at)
		var right bool
		switch {
		case !d.Range().Contains(at), at > d.Back:
			right = place == arch.Outside && !ok
		case at < d.Start():
			right = place == arch.InBody && orig == insns[0].Addr && !ok
		case place == arch.AtCopy:
			right = ok && now == orig && pop == 0 && stands[at]
		default:
			right = place == arch.InCopy && ok == stands[at]
		}
		if !right {
			t.Fatalf("%s of detour % x: place %d %s, original %s %d %t", at, d.Code, place, orig, now, pop, ok)
		}
	}
	for k, p := range d.Pieces {
		if c, ok := d.CopyOf(insns[k].Addr); !ok || c != p.At || !stands[p.At] || !bytes.Equal(p.Insn.Bytes, insns[k].Bytes) {
			t.Fatalf("piece %d of % x: %+v", k, d.Code, p)
		}
	}
	back, err := a.Decode(d.Code[d.Back-d.Addr:], d.Back)
	if err != nil || back.Target != d.End || back.End() != d.Range().End {
		t.Fatalf("back: %+v, %v", back, err)
	}
}

// TestTrapBytesAreNoBeginning: whatever follows them.
func TestTrapBytesAreNoBeginning(t *testing.T) {
	all, int3 := code.Arch{}.TrapBytes(false), code.Arch{}.TrapBytes(true)
	for v := range 256 {
		b := byte(v)
		_, err := code.Arch{}.Decode([]byte{b}, tableAt)
		if all.Has(b) && (b == 0xcc) != int3.Has(b) || all.Has(b) && !int3.Has(b) && !errors.Is(err, arch.ErrUndecodable) {
			t.Errorf("%#x: %v", v, err)
		}
	}
}

var deads = []arch.Dead{{}, {Flags: true}, {Regs: 1}, {Regs: 0xffff}, {Flags: true, Regs: 0xffff}, {Regs: 0x18}, {Flags: true, Regs: 4}, {Regs: 0x3000}}

func bodies() []arch.Body {
	a := code.Arch{}
	all := []arch.Body{nil, a.TrapBody()}
	for _, dead := range deads {
		all = append(all, a.CountBody(tableAt+0x10000, 1, dead, true), a.CountBody(tableAt+0x10000, 4, dead, false), a.CountBody(tableAt+0x10000, 16, dead, true))
	}
	return all
}

// FuzzDetour: any bytes are refused or become detours whose length does not depend on where
// they are.
func FuzzDetour(f *testing.F) {
	seed(f, func(b []byte) { f.Add(b, uint64(tableAt), uint64(0x500000), byte(len(b))) })
	all := bodies()
	f.Fuzz(func(t *testing.T, b []byte, at, addr uint64, body byte) {
		a := code.Arch{}
		var insns []arch.Insn
		for next := arch.Addr(at); len(insns) < 5; {
			i, err := a.Decode(b, next)
			if err != nil || a.Displaceable(i) != nil {
				break
			}
			insns, b, next = append(insns, i), b[i.Len():], i.End()
		}
		a.Dead(insns)
		w := all[int(body)%len(all)]
		n, err := a.DetourLen(insns, w)
		if (err != nil) != (len(insns) == 0) {
			t.Fatalf("%d instructions: %v", len(insns), err)
		}
		d, err := a.AssembleDetour(arch.Addr(addr), insns, w)
		switch {
		case len(insns) == 0:
			return
		case err == nil:
			if len(d.Code) != n {
				t.Fatalf("%d bytes, %d foretold", len(d.Code), n)
			}
			checkDetour(t, d, insns)
		case !errors.Is(err, arch.ErrReach):
			t.Fatal(err)
		}
	})
}

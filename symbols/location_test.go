package symbols

import "testing"

// What an expression means at a function's first instruction.
func TestLocationsAtTheEntry(t *testing.T) {
	cfa := callee{frameBase: []byte{opCFA}}
	word, pair := &dtype{size: 8}, &dtype{size: 16}
	reg := func(name string, off, size int64) part { return part{reg: name, off: off, size: size} }
	for _, c := range []struct {
		what   string
		expr   []byte
		t      *dtype
		listed bool
		want   location
	}{
		{"a register", []byte{opReg0 + 5}, word, true, location{saidPlace, place{parts: []part{reg("rdi", 0, 8)}}}},
		{"a register's value", []byte{opBreg0 + 5, 0, opStackValue}, word, true, location{saidPlace, place{parts: []part{reg("rdi", 0, 8)}}}},
		{"an address in a register", []byte{opBreg0 + 5, 0}, pair, true, location{saidPlace, place{parts: []part{reg("rdi", 0, 8)}, isIndirect: true}}},
		{"two pieces", []byte{opReg0 + 5, opPiece, 8, opReg0 + 4, opPiece, 8}, pair, true,
			location{saidPlace, place{parts: []part{reg("rdi", 0, 8), reg("rsi", 8, 8)}}}},
		{"a piece that is nowhere", []byte{opPiece, 8, opReg0 + 4, opPiece, 8}, pair, true, location{}},
		{"pieces that end too early", []byte{opReg0 + 5, opPiece, 8}, pair, true, location{}},
		{"a stack argument", []byte{opFbreg, 0}, word, false, location{saidPlace, place{parts: []part{{stack: 8, size: 8}}}}},
		{"a place in the frame", []byte{opFbreg, 0x60}, word, false, location{knowledge: saidFrame}},
		{"by the stack pointer, at the entry", []byte{opBreg0 + 7, 16}, word, true, location{saidPlace, place{parts: []part{{stack: 16, size: 8}}}}},
		{"by the stack pointer, behind the prologue", []byte{opBreg0 + 7, 16}, word, false, location{knowledge: saidFrame}},
		{"a constant", []byte{0x31, opStackValue}, word, true, location{knowledge: saidOther}},
		{"a register too small", []byte{opReg0 + 5}, pair, true, location{knowledge: saidOther}},
		{"an end in the middle", []byte{opFbreg}, word, true, location{knowledge: saidOther}},
	} {
		got := cfa.evaluate(c.expr, c.t, c.listed)
		if got.knowledge != c.want.knowledge || got.knowledge == saidPlace && !got.place.equals(c.want.place) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// The list's expression at the entry is taken, in both forms of lists, and damaged lists end.
func TestLocationLists(t *testing.T) {
	d := &dwarfData{loclists: []byte{4, 0x10, 0x20, 1, opReg0, 4, 0x20, 0x30, 1, opReg0 + 5, 0, 4, 1}}
	for at, want := range map[uint64]byte{0x1010: opReg0, 0x1020: opReg0 + 5, 0x1030: 0} {
		l := &locationList{d: d, base: 0x1000, at: at}
		if l.read5(0); want == 0 && l.found != nil || want != 0 && (len(l.found) != 1 || l.found[0] != want) {
			t.Errorf("at %#x: %x, want %x", at, l.found, want)
		}
	}
	for off := range 20 {
		(&locationList{d: d, at: 1}).read5(uint64(off))
		(&locationList{d: &dwarfData{loc: d.loclists}, at: 1}).read4(uint64(off))
	}
}

package symbols

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// falsified is memory in which some words are others.
type falsified struct {
	arch.Memory
	words map[arch.Addr]uint64
}

func (m falsified) ReadMemory(at arch.Addr, p []byte) error {
	if err := m.Memory.ReadMemory(at, p); err != nil {
		return err
	}
	for a, w := range m.words {
		for i := range arch.Addr(8) {
			if x := a + i - at; a+i >= at && x < arch.Addr(len(p)) {
				p[x] = byte(w >> (8 * i))
			}
		}
	}
	return nil
}

func wordAt(t *testing.T, m arch.Memory, at arch.Addr) uint64 {
	t.Helper()
	var b [8]byte
	must(t, m.ReadMemory(at, b[:]))
	return uintOf(b[:])
}

// TestWhatInterfacesHoldIsSearchedForBeforehandAndNotBelieved: at a hit no name is looked up, and a descriptor must agree with the type.
func TestWhatInterfacesHoldIsSearchedForBeforehandAndNotBelieved(t *testing.T) {
	x := trace(t, build(t, "params.go"), "main.main")
	x.runTo(one(t, x.tab, "main.Pointers").Addr)
	r := x.vectorRegs()
	params, err := x.tab.Params(r.IP())
	must(t, err)
	e, point := paramOf(t, params, "e"), paramOf(t, params, "p")
	i, err := point.At("i", Step{Member: "X"})
	must(t, err)
	is, op, inner := Step{Kind: StepAssert, Member: "*fs.PathError"}, Step{Member: "Op"}, Step{Member: "Err"}
	at := Step{Kind: StepElement, IndexOf: &Sum{Terms: []Term{{Param: i}}}}
	placed := map[string]Param{}
	for want, path := range map[string][]Step{
		`"open"`: {is, op}, `"open" `: {op}, "112": {is, op, at}, "112 ": {op, at}, `"x"`: {inner, {Kind: StepAssert, Member: "*errors.errorString"}, {Member: "s"}}, `"x" `: {inner, {Member: "s"}},
	} {
		placed[want], err = e.At("e", path...)
		must(t, err)
	}
	d, err := e.goTypes()
	must(t, err)
	for name := range d.golang.named {
		d.golang.named[name] = goMeaning{} // as if there were none
	}
	check := func(m arch.Memory, known bool) {
		t.Helper()
		for want, p := range placed {
			if !known {
				want = "?"
			} else if want[len(want)-1] == ' ' {
				want = want[:len(want)-1]
			}
			if v := p.Value(r, m); v.Text != want {
				t.Errorf("got %s, want %s: %v", v.Text, want, v.Err)
			}
		}
	}
	check(x.mem, true)

	raw, err := e.place.read(e.typ, r, x.mem)
	must(t, err)
	tab, data := arch.Addr(uintOf(raw)), arch.Addr(uintOf(raw[8:]))
	held := arch.Addr(wordAt(t, x.mem, tab+8))
	for off, bits := range map[arch.Addr]uint64{0: 8, 16: 1 << 56, 40: 4} { // the size, the kind, the name
		check(falsified{x.mem, map[arch.Addr]uint64{held + off: wordAt(t, x.mem, held+off) ^ bits}}, false)
	}
	lo, _, ok := e.mod.goTypes(x.mem)
	if !ok {
		t.Fatal("no descriptors")
	}
	const kindInterface, most = 20, 8
	n := 0
	for at, is := range d.goIndex() {
		if is.kind != kindInterface {
			continue
		}
		if n++; n > most {
			break
		}
		for _, first := range []uint64{uint64(tab), lo + at} { // which holds itself, with methods and without
			check(falsified{x.mem, map[arch.Addr]uint64{tab + 8: lo + at, data: first, data + 8: uint64(data)}}, false)
		}
	}
	if n == 0 {
		t.Error("no interface has a descriptor")
	}
}

// TestKeysAreOfSoundSizes: debug information that says otherwise finds nothing.
func TestKeysAreOfSoundSizes(t *testing.T) {
	for _, x := range []struct {
		key  any
		kind typeKind
		fit  map[int64]bool
	}{
		{"text", typeGoString, map[int64]bool{16: true}}, {true, typeBool, map[int64]bool{1: true}}, {1.5, typeFloat, map[int64]bool{4: true, 8: true}},
		{int64(7), typeFloat, map[int64]bool{4: true, 8: true}}, {uint64(1 << 63), typeUint, map[int64]bool{8: true}},
		{int64(7), typeInt, map[int64]bool{1: true, 2: true, 4: true, 8: true}}, {int64(7), typeUint, map[int64]bool{1: true, 2: true, 4: true, 8: true}},
	} {
		for _, size := range []int64{-1, 0, 1, 2, 4, 8, 9, 15, 16, 17, 1 << 21} {
			if _, ok := (&dtype{kind: x.kind, size: size}).fits(x.key); ok != x.fit[size] {
				t.Errorf("%v in a key of kind %d and %d bytes: %t", x.key, x.kind, size, ok)
			}
		}
	}
}

// TestRowsOfTextsAreTexts: some rows of a C array of texts are as many texts.
func TestRowsOfTextsAreTexts(t *testing.T) {
	letter := &dtype{kind: typeChar, name: "char", size: 1, align: 1}
	p := Param{Name: "m", lang: langC, typ: &dtype{kind: typeArray, name: "char[]", elem: letter, count: 32, dims: []int64{4, 8}, lows: []int64{0, 0}, size: 32, align: 1}}
	p.place = place{isIndirect: true, parts: []part{{size: 8, reg: constantPart, stack: 0x1000}}}
	m := textMemory("ab\x00\x00\x00\x00\x00\x00cd\x00\x00\x00\x00\x00\x00ef\x00\x00\x00\x00\x00\x00gh\x00\x00\x00\x00\x00\x00")
	for want, path := range map[string][]Step{
		`{"ab", "cd"}`: {{Kind: StepRange, End: 2}}, `{"cd", "ef", "gh"}`: {{Kind: StepRange, Index: 1, End: 4}}, `"gh"`: {{Kind: StepElement, Index: 3}},
		`"d"`: {{Kind: StepElement, Index: 1}, {Kind: StepRange, Index: 1, End: 3}},
	} {
		end, err := p.At("m", path...)
		must(t, err)
		if got := end.Value(&testRegs{}, m); got.Text != want {
			t.Errorf("got %s, want %s: %v", got.Text, want, got.Err)
		}
	}
}

// textMemory is at 0x1000.
type textMemory string

func (m textMemory) ReadMemory(at arch.Addr, p []byte) error {
	if from := int(at) - 0x1000; from >= 0 && from+len(p) <= len(m) {
		copy(p, m[from:])
		return nil
	}
	return &arch.FaultError{Addr: at}
}

func (m textMemory) WriteMemory(at arch.Addr, _ []byte) error { return &arch.FaultError{Addr: at} }

// TestReadsEnd: arrays of nothing have no elements to go to, and those of something have many.
func TestReadsEnd(t *testing.T) {
	array := func(n int64, elem *dtype) *dtype {
		return &dtype{kind: typeArray, elem: elem, count: n, size: n * elem.size, align: 1}
	}
	nothing, one := &dtype{kind: typeStruct, align: 1}, &dtype{kind: typeUint, size: 1, align: 1}
	for range 3 {
		nothing, one = array(1024, nothing), array(64, one)
	}
	for want, typ := range map[bool]*dtype{true: nothing, false: one} {
		p := Param{typ: typ, lang: langC, place: place{parts: []part{{size: 8, reg: constantPart}}}}.Within(MostBounds)
		r := &reader{lang: p.lang, bounds: p.bounds.made()}
		r.value(p.typ, func(int64) (Word, bool) { return Word{}, true }, 0)
		if r.seen > mostSeen+1 || r.hasFailed == want {
			t.Errorf("%d values were looked at, failed: %t", r.seen, r.hasFailed)
		}
	}
}

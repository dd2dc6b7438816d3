package symbols

import (
	"bytes"
	"context"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// exercise asks a module for everything it can tell.
func exercise(img *image) {
	tab := newTable([]Option{WithDebugDirs()})
	m := newModule(imageKey{path: "damaged"}, img, tab)
	for _, p := range img.execSegments() {
		m.Text = append(m.Text, arch.Range{Start: arch.Addr(p.Vaddr), End: arch.Addr(p.Vaddr + p.Memsz)})
	}
	tab.snap.Store(newSnapshot([]*Module{m}))
	for _, spec := range []string{"main", "ma*", "nope", "visible+*", "names.c:11", "ns::f(int)", "main.F[...]"} {
		tab.Resolve(context.Background(), spec)
	}
	st := m.symbols()
	for i := range st.entries {
		if i > 50 {
			break
		}
		a := m.addr(st.entries[i].value)
		tab.Lookup(a + 1)
		tab.Function(a)
		tab.Line(a)
		img.row(m.link(a))
		if params, err := tab.Params(a); err == nil {
			for _, p := range params {
				p.Value(&testRegs{}, noMemory{})
				exercisePaths(p)
			}
			exerciseTypes(params)
		}
		for _, at := range []arch.Addr{a, a + 9} {
			seen, _ := tab.Variables(at)
			for _, p := range slices.Concat(seen.Params, seen.Locals) {
				p.Value(&testRegs{}, noMemory{})
				p.Reads("rsp")
				p.Brief().Value(&testRegs{}, noMemory{})
				p.Brief().Reads("rsp")
				exercisePaths(p)
			}
		}
		exerciseCalls(tab, img, st.entries[i].value)
	}
	img.bindings()
	img.relative()
	if g := img.stackTable(); g != nil {
		g.frame(g.text)
	}
}

// exerciseCalls asks for what is known of the calls in the function at v.
func exerciseCalls(tab *Table, img *image, v uint64) {
	d, err := img.dwarfOf(tab)
	if err != nil {
		return
	}
	if u, off, ok := d.subprogram(v); ok {
		sites, _ := d.readSites(img, u, off)
		for back, site := range sites {
			img.callSite(tab, back)
			if site == nil {
				continue
			}
			for _, made := range site.params {
				if made != nil {
					execute(dryWorld{made}, made.steps, true)
				}
			}
		}
		d.entersItself(img, off, v)
	}
}

// exerciseTypes reads each parameter as what it may fit.
func exerciseTypes(params []Param) {
	for _, f := range []any{func(int32) {}, func(arch.Addr) {}, func(string) {}, func(bool) {}, func(float64) {},
		func([16]byte) {}, func(struct{ a, b int32 }) {}, func(struct{ a [2][2]int64 }) {}} {
		for i := range params {
			if p, err := newPrototype(params[i:i+1], typesOf(f)); err == nil {
				p.Arguments(&testRegs{}, noMemory{})
			}
		}
	}
}

type noMemory struct{}

func (noMemory) ReadMemory(at arch.Addr, p []byte) error  { return &arch.FaultError{Addr: at} }
func (noMemory) WriteMemory(at arch.Addr, p []byte) error { return &arch.FaultError{Addr: at} }

// Files are the target's and may be damaged on purpose: nothing in them may
// crash or hang the tracer.
func FuzzDamagedFile(f *testing.F) {
	seed, err := os.ReadFile(build(f, "names.c", "-g", "-nostartfiles", "-shared", "-fPIC", "-Wl,-z,max-page-size=4096"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(16), []byte{0xff, 0xff})
	f.Add(uint32(0x40), []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		data := bytes.Clone(seed)
		copy(data[int(at)%len(data):], patch)
		img, err := newImage(bytes.NewReader(data), uint64(len(data)), "damaged")
		if err != nil {
			return
		}
		exercise(img)
	})
}

func TestEveryByteOfAFileMayBeDamaged(t *testing.T) {
	for _, c := range [][2]string{{"names.c", "-O0"}, {"members.c", "-O0"}, {"computed.c", "-O2"}} {
		seed, err := os.ReadFile(build(t, c[0], c[1], "-g", "-nostartfiles", "-shared", "-fPIC", "-Wl,-z,max-page-size=4096"))
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(seed); at += 7 {
			data := bytes.Clone(seed)
			data[at] ^= 0xff
			if img, err := newImage(bytes.NewReader(data), uint64(len(data)), "damaged"); err == nil {
				exercise(img)
			}
		}
	}
}

func TestATableServesManyGoroutines(t *testing.T) {
	tg := start(t, build(t, "names.c", "-g"))
	tab := tg.open(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				locs, err := tab.Resolve(t.Context(), []string{"visible", "strlen", "hidden", "names.c:11"}[i%4])
				if err != nil || len(locs) != 1 {
					t.Error(locs, err)
					return
				}
				loc := locs[0]
				tab.Lookup(loc.Addr + 1)
				tab.Line(loc.Addr)
				tab.Params(tg.said["visible"])
				tab.Function(loc.Addr)
				if i == 0 {
					if err := tab.Refresh(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// A number of over ten bytes is one that debug/dwarf reads on and we do not: then the check of a table would be of other abbreviations than are read.
func TestLongNumbersDoNotHideAbbreviations(t *testing.T) {
	const implicitConst = 0x21
	least := []byte{0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}
	for name, c := range map[string]struct {
		value []byte
		ok    bool
	}{
		"the least number":      {least, true},
		"one of eleven bytes":   {append(bytes.Repeat([]byte{0x80}, 10), 0), false},
		"a number that is cut":  {[]byte{0x80}, false},
		"one that has no bytes": {nil, false},
	} {
		table := append([]byte{1, 0x34, 0, 0x1c, implicitConst}, c.value...)
		if c.ok {
			table = append(table, 0, 0, 0, 0xff, 0xff)
		}
		if size, _, ok := abbrevTable(table); ok != c.ok || ok && size != len(table)-2 {
			t.Errorf("%s: %d of %d bytes, %v", name, size, len(table), ok)
		}
	}
}

// Offsets near the greatest number do not lead out of a value.
func TestFieldsFarAwayAreNowhere(t *testing.T) {
	u32 := &dtype{kind: typeUint, size: 4, align: 4}
	for _, f := range []dfield{
		{typ: u32, off: math.MaxInt64}, {typ: u32, off: math.MaxInt64 - 3}, {typ: u32, off: -1}, {typ: u32, off: 5},
		{typ: u32, bits: true, bit: math.MaxInt64, wide: 3}, {typ: u32, bits: true, bit: 62, wide: 3},
	} {
		if _, ok := f.of(make([]byte, 8)); ok {
			t.Errorf("%+v has a value", f)
		}
	}
}

// exercisePaths asks for values that may be reached from p.
func exercisePaths(p Param) {
	next := Step{Kind: StepArrow, Member: "next"}
	for _, path := range [][]Step{
		nil, {next}, {next, {Kind: StepDot, Member: "inner"}, {Kind: StepMember, Member: "name"}}, {{Member: "flags"}},
		{{Kind: StepElement, Index: 1}}, {{Kind: StepElement, Index: 1 << 30}, {Kind: StepElement}}, {{Kind: StepTarget}, {Kind: StepTarget}}, {{Kind: StepLength}},
		{{Kind: StepAddress}}, {{Kind: StepTarget}, {Kind: StepElement, Index: 3}, {Kind: StepAddress}},
	} {
		end, err := p.At("value", path...)
		if err != nil {
			continue
		}
		end.Value(&testRegs{}, noMemory{})
		end.Reads("rsp")
		end.Datum()
	}
}

package program

import (
	"fmt"
	"strings"
	"testing"
)

const spAt = 0x7000

// target is a structure with pointers, and a stack.
var target = memory{
	0x1000: []byte{1, 0, 0, 0, 0xfe, 0xff, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0}, // {s32 1, s16 -2, …, ptr 0x2000}
	0x2000: []byte("name\x00garbage that goes on and on"),
	0x9ff0: []byte("0123456789abcend"),
	spAt:   {8, 7, 6, 5, 4, 3, 2, 1, 0xaa, 0, 0, 0, 0, 0, 0, 0},
}

func build(t *testing.T, filter Cond, actions ...Action) *Program {
	t.Helper()
	p, err := Build("test", 9, testRegs, filter, actions...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var ring = Map{Kind: Ring, Size: MinRingSize}

func TestRecordHoldsItsItems(t *testing.T) {
	items := []Item{
		{Name: "time", Value: Now()},
		{Name: "thread", Value: CurrentThread()},
		{Name: "ax", Value: Reg("ax")},
		{Name: "al", Value: Reg("ax").As(S8)},
		{Name: "ax16", Value: Reg("ax").Plus(1).As(U16)},
		{Name: "ax8", Value: Reg("ax").Plus(1).As(U8)},
		{Name: "ax32", Value: Reg("ax").Plus(-1).As(S32)},
		{Name: "far", Value: Reg("ax").Plus(1 << 40)},
		{Name: "const", Value: Const(1 << 50)},
		{Name: "stack1", Value: StackWord("sp", 1)},
		{Name: "field", Value: Reg("di").Load(4, S16)},
		{Name: "bad", Value: Reg("si").Load(0, U32)},
		{Name: "str", Kind: String, Value: Reg("di").Load(8, U64), Max: 16},
		{Name: "cut", Kind: String, Value: Reg("di").Load(8, U64), Max: 3},
		{Name: "raw", Kind: Bytes, Value: Reg("sp"), Max: 4},
		{Name: "counted", Kind: CountedBytes, Value: Reg("sp"), Len: Reg("di").Load(0, U32), Max: 8},
		{Name: "elems", Kind: CountedBytes, Value: Reg("sp"), Len: Reg("di").Load(4, S16), Elem: 3, Max: 8},
		{Name: "text", Kind: Text, Value: Reg("di").Load(8, U64), Max: 6},
		{Name: "notext", Kind: Text, Value: Reg("si"), Max: 6},
		{Name: "page", Kind: Text, Value: Const(0x9ffd), Max: 6},
		{Name: "item", Value: ItemWord(14, 0).As(U16)},
		{Name: "byitem", Kind: Bytes, Value: ItemWord(9, 0).Plus(spAt - 170), Max: 2},
		{Name: "null", Kind: String, Value: Const(0), Max: 2},
		{Name: "badstr", Kind: String, Value: Reg("si"), Max: 4},
		{Name: "badlen", Kind: CountedBytes, Value: Reg("sp"), Len: Reg("si").Load(0, U32), Max: 8},
		{Name: "zero", Value: Reg("si").Load(0, U32).OrZero().Plus(3)},
		{Name: "notzero", Value: Reg("di").Load(4, S16).OrZero()},
		{Name: "array", Kind: Array, Value: Reg("sp"), Max: 4},
		{Name: "half", Kind: Array, Value: Const(0x9ffd), Max: 6},
		{Name: "noarray", Kind: Array, Value: Reg("si"), Max: 4},
		{Name: "processor", Value: CurrentProcessor()},
	}
	p := build(t, Cond{}, WriteRecord{Ring: ring, Items: items})
	e := env(p, regs{0xffff_ffff_ffff_fff0, 0x1000, 0x10, spAt}, target)
	run(t, p, e)
	rec := records(t, p.Maps[0], e.Maps[0])[0]
	if rec.Program != 9 {
		t.Errorf("record of program %d", rec.Program)
	}
	var got []string
	for i, f := range p.Fields {
		s := f.Name + "="
		if f.Size == 8 && items[i].Kind == Number {
			s += fmt.Sprint(int64(uintOf(rec.Payload[f.Off:])))
		} else {
			s += fmt.Sprintf("%q", rec.Payload[f.Off:][:f.Size])
		}
		if f.Err >= 0 {
			s += fmt.Sprintf(":%d", int64(uintOf(rec.Payload[f.Err:])))
		}
		got = append(got, s)
	}
	want := []string{
		"time=1234", "thread=77", "ax=-16", "al=-16", "ax16=65521", "ax8=241", "ax32=-17", "far=1099511627760", "const=1125899906842624",
		"stack1=170:0", "field=-2:0", "bad=0:-14",
		`str="name\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00":5`, `cut="na\x00":3`,
		`raw="\b\a\x06\x05":0`, `counted="\b\x00\x00\x00\x00\x00\x00\x00":1`,
		`elems="\b\a\x06\x05\x04\x03\x00\x00":6`, `text="name\x00\x00":5`, `notext="\x00\x00\x00\x00\x00\x00":-14`, `page="end\x00\x00\x00":3`,
		"item=1800", `byitem="\b\a":0`, `null="\x00\x00":-14`,
		`badstr="\x00\x00\x00\x00":-14`, `badlen="\x00\x00\x00\x00\x00\x00\x00\x00":-14`,
		"zero=0", "notzero=-2", `array="\b\a\x06\x05":0`, `half="end\x00\x00\x00":3`, `noarray="\x00\x00\x00\x00":-14`,
		"processor=5",
	}
	if len(got) != len(want) {
		t.Fatalf("%d fields, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %s, want %s", got[i], want[i])
		}
	}
}

func TestAFullRingCountsLosses(t *testing.T) {
	p := build(t, Cond{}, WriteRecord{Ring: ring, Items: []Item{{Value: Reg("ax")}}})
	e := env(p, regs{1, 2, 3, 4}, nil)
	const hits = 2 * MinRingSize / 16
	for range hits {
		run(t, p, e)
	}
	lost, err := p.Maps[1].Values(e.Maps[1])
	if n := len(records(t, ring, e.Maps[0])); err != nil || n != hits/2 || lost[0] != hits/2 {
		t.Errorf("%d records and %d losses of %d hits, %v", n, lost, hits, err)
	}
}

func TestCountsAndHistograms(t *testing.T) {
	p := build(t, Cond{}, CountHit{Shards: 4},
		AddToHistogram{Map{Kind: Log2}, Reg("ax")},
		AddToHistogram{Map{Kind: Linear, Min: 0, Step: 10, Buckets: 3}, Reg("ax").As(S32)},
		AddToHistogram{Map{Kind: Log2}, Reg("ax").Load(0, U8)})
	e := env(p, nil, memory{15: []byte{200}})
	for _, v := range []uint64{0, 5, 15, 29, 30, 1<<64 - 1} {
		e.Regs = regs{v, 0, 0, 0}
		run(t, p, e)
	}
	var all [][]uint64
	for i, m := range p.Maps {
		v, err := m.Values(e.Maps[i])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if all[0][0] != 6 {
		t.Errorf("count %d", all[0])
	}
	if h := all[1]; h[0] != 1 || h[3] != 1 || h[4] != 1 || h[5] != 2 || h[64] != 1 {
		t.Errorf("log2 %d", h)
	}
	if got, want := fmt.Sprint(all[2]), "[1 2 1 1 1]"; got != want {
		t.Errorf("linear %s, want %s", got, want)
	}
	if h := all[3]; h[8] != 1 || len(h) != Log2Cells {
		t.Errorf("of memory: %d", h)
	}
}

func TestFilters(t *testing.T) {
	ax, bad := Reg("ax"), Reg("si").Load(0, U64)
	is := func(n int64) Cond { return Compare(ax, Equal, Const(n)) }
	fault := Compare(bad, Equal, Const(0))
	zero := Compare(bad.OrZero(), Equal, Const(0))
	for i, c := range []struct {
		cond Cond
		ax   int64
		want bool
	}{
		{Cond{}, 0, true}, {Not(Cond{}), 0, false}, {All(), 0, true}, {Any(), 0, false}, {Not(Any()), 0, true}, {Not(All()), 0, false},
		{zero, 0, true}, {Not(zero), 0, false}, {Compare(ax, Less, bad.OrZero()), -1, true}, {Compare(ax, Less, bad.OrZero()), 0, false},
		{is(5), 5, true}, {is(5), 6, false}, {Not(is(5)), 5, false}, {Not(is(5)), 6, true},
		{is(1 << 40), 1 << 40, true}, {is(1 << 40), 0, false},
		{Compare(ax, Less, Const(0)), -1, true}, {Compare(ax, Below, Const(1)), -1, false},
		{Compare(ax, LessEqual, Const(-1)), -1, true}, {Compare(ax, Greater, Const(-1)), -1, false},
		{Compare(ax, GreaterEqual, Const(3)), 3, true}, {Compare(ax, Above, Const(3)), -3, true},
		{Compare(ax, AboveEqual, Const(-3)), 3, false}, {Compare(ax, BelowEqual, Const(-3)), 3, true},
		{Compare(ax, NotEqual, Reg("di")), 0x1000, false}, {Compare(Reg("di"), Equal, ax), 0x1000, true},
		{Compare(ax, AnyBit, Const(6)), 2, true}, {Compare(ax, AnyBit, Const(6)), 1, false}, {Not(Compare(ax, AnyBit, Const(6))), 1, true},
		{All(is(1), is(2)), 1, false}, {Any(is(1), is(2)), 2, true}, {Any(is(1), is(2)), 3, false},
		{Not(All(is(1), is(2))), 1, true}, {Not(Any(is(1), is(2))), 2, false}, {Not(Any(is(1), is(2))), 3, true},
		{All(Any(is(1), is(2)), Not(is(2))), 1, true}, {All(Any(is(1), is(2)), Not(is(2))), 2, false},
		{Any(All(is(1), Compare(ax, Equal, Const(1))), All(is(3), Cond{})), 3, true},
		{Any(Any(is(1), is(2)), Any(is(3), is(4))), 4, true}, {Not(Any(All(is(1)), Any(is(3), is(4)))), 4, false},
		{Any(Cond{}, is(1)), 7, true},
		{fault, 1, false}, {Not(fault), 1, false}, {Any(fault, is(1)), 1, true}, {Any(is(1), fault), 1, true}, {All(is(1), Not(fault)), 1, false},
		{Compare(Reg("di").Load(4, S16), Equal, Const(-2)), 0, true}, {Compare(Reg("di").Load(4, U16), Equal, Const(0xfffe)), 0, true},
		{Compare(Reg("di").Load(8, U64).Load(1, U8), Equal, Const('a')), 0, true},
	} {
		p := build(t, c.cond, CountHit{})
		e := env(p, regs{uint64(c.ax), 0x1000, 0x10, spAt}, target)
		run(t, p, e)
		if got := e.Maps[0][0] == 1; got != c.want {
			t.Errorf("condition %d with %d: met %v\n%v", i, c.ax, got, p.Insns)
		}
	}
}

func TestBuildNamesWhatIsWrong(t *testing.T) {
	one := func(i Item) Action { return WriteRecord{Ring: ring, Items: []Item{i}} }
	for want, a := range map[string]Action{
		"no register xyz":       one(Item{Value: Reg("xyz")}),
		"a number of 3 bytes":   one(Item{Value: Reg("ax").As(Type{3, false})}),
		"no room":               one(Item{Value: Reg("ax"), Kind: String}),
		"a record of 0 bytes":   WriteRecord{Ring: ring},
		"a record of 9008":      one(Item{Value: Reg("ax"), Kind: Bytes, Max: 9000}),
		"a ring is no histo":    AddToHistogram{ring, Reg("ax")},
		"with 3 shards":         CountHit{Shards: 3},
		"ring of 5 bytes":       WriteRecord{Ring: Map{Kind: Ring, Size: 5}, Items: []Item{{Value: Reg("ax")}}},
		"no 8 bytes":            one(Item{Value: ItemWord(0, 0)}),
		"no register of length": AddToHistogram{Map{Kind: Log2}, Reg("of length")},
	} {
		if _, err := Build("p", 1, testRegs, Cond{}, a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := Build("p", 1, testRegs, Compare(Reg("xyz"), Equal, Const(1))); err == nil {
		t.Error("a filter with an unknown register")
	}
}

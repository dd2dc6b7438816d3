package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// steps reads n->inner.id.
func steps(path string) (name string, s []Step) {
	path = strings.ReplaceAll(path, "->", " >")
	path = strings.ReplaceAll(path, ".", " .")
	words := strings.Fields(path)
	for _, w := range words[1:] {
		kind := StepDot
		if w[0] == '>' {
			kind = StepArrow
		}
		s = append(s, Step{Kind: kind, Member: w[1:]})
	}
	return words[0], s
}

// datumAt is the Datum of what a path leads to from p.
func datumAt(p Param, path ...Step) (Datum, error) {
	end, err := p.At(p.Name, path...)
	if err != nil {
		return Datum{}, err
	}
	return end.Datum()
}

// fetched is what d holds, as debugfs would print it.
func fetched(t *testing.T, d Datum, r arch.Regs, m arch.Memory) string {
	t.Helper()
	loads := d.Loads
	v, ok := r.Get(d.Reg)
	if d.Reg == "" {
		v, ok = uint64(r.SP()), true
		loads = append([]int64{d.Stack}, loads...)
	}
	if !ok {
		t.Fatalf("no register %s", d.Reg)
	}
	for i, off := range loads {
		at := arch.Addr(v).Add(off)
		if i == len(loads)-1 && d.Shape == ShapeText {
			v = uint64(at)
			break
		}
		b := make([]byte, 8)
		if err := m.ReadMemory(at, b); err != nil {
			t.Fatal(err)
		}
		v = binary.LittleEndian.Uint64(b)
	}
	switch {
	case d.Bits > 0:
		return fmt.Sprint(v >> d.Bit & (1<<d.Bits - 1))
	case d.Shape == ShapeSigned:
		return fmt.Sprint(int64(v) << (64 - 8*d.Size) >> (64 - 8*d.Size))
	case d.Shape == ShapeUnsigned:
		return fmt.Sprint(v << (64 - 8*d.Size) >> (64 - 8*d.Size))
	case d.Shape == ShapeText, d.Shape == ShapeTextPointer:
		b := make([]byte, 8)
		if err := m.ReadMemory(arch.Addr(v), b[:3]); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q", b[:3])
	}
	return fmt.Sprintf("%#x", v)
}

func paramOf(t *testing.T, params []Param, name string) Param {
	t.Helper()
	for _, p := range params {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no parameter %s", name)
	return Param{}
}

func TestMembersAreWhereTheCompilerPutThem(t *testing.T) {
	for _, flags := range [][]string{{"-g"}, {"-g", "-O2"}, {"-gdwarf-3", "-gstrict-dwarf"}, {"-gdwarf-4"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			x := trace(t, build(t, "members.c", flags...), "main")
			x.runTo(one(t, x.tab, "take").Addr)
			r := x.vectorRegs()
			params, err := x.tab.Params(r.IP())
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{
				"a": "1", "e": "5", "s": `"tex"`, "n->kind": "1", "n->number": "21474836484", "n->low": "4", "n->high": "5", "last->kind": "2",
				"n->inner.id": "300", "n->inner.flags": "2", "n->next->kind": "2", "n->next->number": "-3", "n->next->inner.id": "-7",
				"n->next->inner.flags": "5", "n->next->inner.mode": "19", "n->next->inner.wide": "70000", "n->next->inner.more": "1099511627774",
				"n->next->inner.name": `"two"`, "last->inner.text": `"sec"`, "n->next->next": "0x0", "byvalue.id": "-7", "byvalue.name": `"two"`,
				"n->weight": "0x3ff8000000000000",
			} {
				name, path2 := steps(path)
				d, err := datumAt(paramOf(t, params, name), path2...)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					continue
				}
				if got := fetched(t, d, r, x.mem); got != want {
					t.Errorf("%s is %s, want %s (%+v)", path, got, want, d)
				}
			}
		})
	}
}

func TestPathsThatLeadNowhere(t *testing.T) {
	tab := file(t, build(t, "members.c", "-g"))
	params, err := tab.Params(one(t, tab, "take").Addr)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		step int
		err  error
	}{
		"n->gone": {0, ErrNoMember}, "n->inner.gone": {1, ErrNoMember}, "n->kind.x": {1, ErrNotPointer}, "a->x": {0, ErrNotPointer},
		"n.kind": {0, ErrNotPointer}, "n->hidden->x": {1, ErrNotPointer}, "n->inner.flags.x": {2, ErrNotPointer}, "s->x": {0, ErrNotPointer},
	} {
		name, path2 := steps(path)
		_, err := datumAt(paramOf(t, params, name), path2...)
		var s *StepError
		if !errors.As(err, &s) || s.Step != want.step || !errors.Is(err, want.err) {
			t.Errorf("%s: %v, want %v at %d", path, err, want.err, want.step)
		}
	}
	if _, err := paramOf(t, params, "x").Datum(); !errors.Is(err, ErrNoPlace) {
		t.Errorf("a double: %v", err)
	}
	results, err := tab.Results(one(t, tab, "take").Addr)
	if err != nil || len(results) != 1 {
		t.Fatal(results, err)
	}
	if d, err := results[0].Datum(); err != nil || d.Reg != "rax" || d.Shape != ShapeSigned || d.Size != 4 {
		t.Errorf("the result: %+v, %v", d, err)
	}
}

func TestBaseClassesAndReferences(t *testing.T) {
	tab := file(t, build(t, "members.cc", "-g"))
	params, err := tab.Params(one(t, tab, "take").Addr)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]int64{"d->own": {16}, "d->first": {0}, "d->second": {8}, "r->own": {16}, "d->self->second": {24, 8}} {
		name, path2 := steps(path)
		d, err := datumAt(paramOf(t, params, name), path2...)
		if err != nil || fmt.Sprint(d.Loads) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, %v", path, d, err)
		}
	}
}

// countedText is the text whose address and length d tells.
func countedText(t *testing.T, d Datum, r arch.Regs, m arch.Memory) string {
	t.Helper()
	n, err := strconv.Atoi(fetched(t, *d.Len, r, m))
	if err != nil {
		t.Fatal(err)
	}
	d.Shape, d.Size = ShapeUnsigned, 8
	at, err := strconv.ParseUint(fetched(t, d, r, m), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	if err := m.ReadMemory(arch.Addr(at), b); n > 0 && err != nil {
		t.Fatal(err)
	}
	return quoted(b[:min(n, DefaultBounds.Bytes)], n > DefaultBounds.Bytes).Text
}

// Numbers and texts in registers and on the stack are the same as Value prints, in all languages.
func TestDatumsAreWhatValuePrints(t *testing.T) {
	for _, c := range []struct {
		src   string
		flags []string
		calls []struct{ fn, want string }
		least int // numbers among the parameters
	}{
		{"params.c", []string{"-g", "-O1"}, cCalls, 20},
		{"params.cc", []string{"-g", "-O1", "-std=c++17"}, cppCalls, 2},
		{"params.go", nil, goCalls, 15},
		{"params.rs", []string{"-g"}, rustCalls, 5},
	} {
		t.Run(c.src, func(t *testing.T) {
			x := trace(t, build(t, c.src, c.flags...), mainOf(c.src))
			numbers, texts := 0, 0
			for _, call := range c.calls {
				x.runTo(one(t, x.tab, call.fn).Addr)
				r := x.vectorRegs()
				params, err := x.tab.Params(r.IP())
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range params {
					d, err := p.Datum()
					if err == nil && d.Shape == ShapeCountedText {
						texts++
						if got, want := countedText(t, d, r, x.mem), p.Value(r, x.mem).Text; got != want {
							t.Errorf("%s.%s is %s, want %s", call.fn, p.Name, got, want)
						}
						continue
					}
					if err != nil || p.typ.kind != typeInt && p.typ.kind != typeUint || d.Size > 8 {
						continue
					}
					numbers++
					if got, want := fetched(t, d, r, x.mem), p.Value(r, x.mem).Text; got != want {
						t.Errorf("%s.%s is %s, want %s (%+v)", call.fn, p.Name, got, want, d)
					}
				}
			}
			if numbers < c.least || texts == 0 && c.src != "params.c" {
				t.Errorf("%d numbers, %d texts", numbers, texts)
			}
		})
	}
}

// A datum tells the sign of characters and of bit fields, and floating-point numbers and arrays from other things.
func TestShapesOfNumbers(t *testing.T) {
	char := &dtype{kind: typeChar, size: 1}
	byt := &dtype{kind: typeChar, size: 1, isUnsigned: true}
	for _, c := range []struct {
		t    *dtype
		want Shape
	}{
		{char, ShapeSigned}, {byt, ShapeUnsigned}, {&dtype{kind: typeEnum, size: 4}, ShapeSigned}, {&dtype{kind: typeEnum, size: 4, isUnsigned: true}, ShapeUnsigned},
		{&dtype{kind: typeFloat, size: 8}, ShapeFloat}, {&dtype{kind: typeFloat, size: 16}, ShapeOther}, {&dtype{kind: typeInt, size: 16}, ShapeOther},
		{&dtype{kind: typeArray, elem: byt, count: 3, size: 3}, ShapeArray}, {&dtype{kind: typeStruct, size: 8}, ShapeOther},
	} {
		if got := c.t.shape(langC); got != c.want {
			t.Errorf("%+v: %d, want %d", c.t, got, c.want)
		}
	}
}

func TestBitFieldsAreShownWithTheirSigns(t *testing.T) {
	of := func(k typeKind, size int64) *dtype { return &dtype{kind: k, size: size} }
	s := &dtype{kind: typeStruct, size: 4, field: []dfield{
		{name: "a", typ: of(typeInt, 4), bits: true, bit: 0, wide: 5}, {name: "b", typ: of(typeUint, 4), bits: true, bit: 5, wide: 5},
		{name: "c", typ: of(typeInt, 4), bits: true, bit: 10, wide: 22}, {name: "gone", typ: of(typeInt, 4), bits: true, bit: 30, wide: 5},
	}}
	raw := binary.LittleEndian.AppendUint32(nil, 29|29<<5|1<<31)
	f := &formatter{budget: fieldsAlways, bounds: Bounds{}.made()}
	if got, want := f.format(s, raw, 0).Text, "{a: -3, b: 29, c: -2097152}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

package symbols

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// SetVector implements VectorSetter.
func (v *vectorRegs) SetVector(n int, to [16]byte) error {
	copy(v.fx[160+16*n:], to[:])
	return nil
}

// changedRegs are registers of which some have been set.
type changedRegs struct {
	*vectorRegs
	set map[string]uint64
}

func (c changedRegs) Get(name string) (uint64, bool) {
	if v, ok := c.set[name]; ok {
		return v, true
	}
	return c.vectorRegs.Get(name)
}

func (c changedRegs) Set(name string, v uint64) bool {
	_, ok := c.vectorRegs.Get(name)
	c.set[name] = v
	return ok
}

// overlay is memory whose changes nobody else sees.
type overlay struct {
	arch.Memory
	changed map[arch.Addr]byte
}

func (o overlay) ReadMemory(at arch.Addr, p []byte) error {
	err := o.Memory.ReadMemory(at, p)
	for i := range p {
		if b, ok := o.changed[at.Add(int64(i))]; ok {
			p[i] = b
		}
	}
	return err
}

func (o overlay) WriteMemory(at arch.Addr, p []byte) error {
	for i, b := range p {
		o.changed[at.Add(int64(i))] = b
	}
	return nil
}

// TestStoredResultsAreRead puts other bytes in the place of every result of every call, all of a
// call before any is read: places that overlap, or are not Value's, would be seen.
func TestStoredResultsAreRead(t *testing.T) {
	for _, c := range []struct {
		name, src string
		flags     []string
		calls     []struct{ fn, want string }
		most      int // calls with a result that can't be stored
	}{
		{"C", "results.c", []string{"-g"}, cResults, 5},
		{"C++", "results.cc", []string{"-g", "-O1", "-std=c++17"}, cppResults, 6},
		{"Go", "results.go", nil, goResults, 0},
		{"Go not optimized", "results.go", []string{"-gcflags=-N -l"}, goResults, 0},
		{"Rust", "results.rs", []string{"-g"}, rustResults, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := trace(t, build(t, c.src, c.flags...), mainOf(c.src))
			refused := 0
			for _, call := range c.calls {
				entry := one(t, x.tab, call.fn).Addr
				x.runTo(entry)
				x.toReturn()
				if !x.storesAll(call.fn, entry) {
					refused++
				}
			}
			if refused != c.most {
				t.Errorf("%d functions have results that can't be stored, want %d", refused, c.most)
			}
		})
	}
}

// storesAll is false if a result of the function can't be stored.
func (x *tracee) storesAll(fn string, entry arch.Addr) bool {
	x.t.Helper()
	results, err := x.tab.Results(entry)
	if err != nil {
		x.t.Fatal(err)
	}
	r, m := changedRegs{x.vectorRegs(), map[string]uint64{}}, overlay{x.mem, map[arch.Addr]byte{}}
	want := make([][]byte, len(results))
	for i, p := range results {
		if err := p.Storable(); err != nil {
			if p.Store(make([]byte, p.TypeOf().Size()), r, m) == nil {
				x.t.Errorf("%s: %v, and yet it is stored", fn, err)
			}
			return false
		}
		if want[i], err = p.Bytes(r, x.mem); err != nil {
			x.t.Fatal(err)
		}
		for j := range want[i] {
			want[i][j] ^= byte(0x5a + 16*i + j)
		}
		want[i] = p.place.only(want[i])
		if err := p.Store(want[i], r, m); err != nil {
			x.t.Errorf("%s: %v", fn, err)
		}
	}
	for i, p := range results {
		if got, err := p.Bytes(r, m); err != nil || !bytes.Equal(got, want[i]) {
			x.t.Errorf("%s: %s was stored as % x, and is % x, %v", fn, p.Name, want[i], got, err)
		}
		if p.Store(append(want[i], 0), r, m) == nil {
			x.t.Errorf("%s: %s is stored with a byte too many", fn, p.Name)
		}
	}
	return true
}

// only is b with zeros where p has no part: padding is passed nowhere.
func (p place) only(b []byte) []byte {
	out := make([]byte, len(b))
	for _, x := range p.parts {
		copy(out[x.off:x.off+x.size], b[x.off:])
	}
	return out
}

func TestATypeIsSeenAsGoWouldSeeIt(t *testing.T) {
	tab := file(t, build(t, "results.go"))
	at := one(t, tab, "main.Structs").Addr
	results, err := tab.Results(at)
	if err != nil {
		t.Fatal(err)
	}
	deep := results[1].TypeOf()
	fields := deep.Fields()
	if !deep.Go() || deep.Name() != "main.Deep" || deep.Size() != 40 || len(fields) != 3 {
		t.Fatalf("main.Deep is %s of %d bytes with %+v", deep.Name(), deep.Size(), fields)
	}
	for i, want := range []struct {
		name, kind string
		off        int64
	}{{"Name", "string", 0}, {"At", "struct", 16}, {"ok", "bool", 32}} {
		if f := fields[i]; f.Name != want.name || f.Type.Kind().String() != want.kind || f.Offset != want.off {
			t.Errorf("field %d is %s at %d, a %s", i, f.Name, f.Offset, f.Type.Kind())
		}
	}
	var none Type
	if none.Kind() != 0 || none.Size() != 0 || none.Elem() != none || none.Fields() != nil || none.Direct() {
		t.Error("the zero Type is something")
	}
}

func TestKindsOfCTypes(t *testing.T) {
	tab := file(t, build(t, "results.c", "-g"))
	for fn, want := range map[string]string{
		"negative": "int", "byte": "uint", "truth": "bool", "letter": "int", "color": "int", "single": "float64", "dbl": "float64",
		"extended": "invalid", "text": "ptr", "two_ints": "struct", "of_two": "invalid", "cdouble": "complex128",
	} {
		results, err := tab.Results(one(t, tab, fn).Addr)
		if err != nil || len(results) != 1 {
			t.Fatal(fn, results, err)
		}
		if typ := results[0].TypeOf(); typ.Kind().String() != want || typ.Go() {
			t.Errorf("%s returns a %s, want %s", fn, typ.Kind(), want)
		}
	}
	color, err := tab.Results(one(t, tab, "color").Addr)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := color[0].TypeOf().Enumerator("BLUE"); !ok || color[0].TypeOf().t.enum[v] != "BLUE" {
		t.Errorf("BLUE is %d, %v", v, ok)
	}
	if _, ok := color[0].TypeOf().Enumerator("PINK"); ok {
		t.Error("there is a PINK")
	}
}

func TestInterfaceTablesTypesAndVariablesOfAGoProgram(t *testing.T) {
	for _, flags := range [][]string{nil, {"-buildmode=pie"}, {"-gcflags=-N -l"}} {
		tab := file(t, build(t, "results.go", flags...))
		at := one(t, tab, "main.main").Addr
		have := map[string]bool{}
		for _, x := range tab.GoItabs(at, "error") {
			have[x.Type] = true
			if x.Addr == 0 || x.Interface != "error" {
				t.Errorf("%+v", x)
			}
		}
		for _, name := range []string{"*errors.errorString", "syscall.Errno", "*io/fs.PathError", "*main.Code"} {
			typ, ok := tab.GoReceiver(at, name)
			if !have[name] || !ok || typ.Name() != name || typ.Direct() != (name[0] == '*') {
				t.Errorf("%v: %s: table %v, type %s, %v", flags, name, have[name], typ.Name(), ok)
			}
		}
		code, _ := tab.GoReceiver(at, "*main.Code")
		if f := code.Elem().Fields(); len(f) != 1 || f[0].Name != "n" {
			t.Errorf("main.Code has the fields %+v", f)
		}
		if _, ok := tab.GoReceiver(at, "*main.Point"); !ok {
			t.Error("main.Point has a method, and is not found by it")
		}
		if _, ok := tab.GoReceiver(at, "main.Named"); ok {
			t.Error("main.Named has no method")
		}
		if v := tab.GoVariables(at, "fs.ErrNotExist"); len(v) != 1 || v[0].Name != "io/fs.ErrNotExist" || v[0].Size != 16 {
			t.Errorf("fs.ErrNotExist: %+v", v)
		}
		if v := tab.GoVariables(at, "main.calls"); len(v) != 1 || v[0].Size != 8 {
			t.Errorf("main.calls: %+v", v)
		}
		if v := tab.GoVariables(at, "rrNotExist"); len(v) != 0 {
			t.Errorf("half a name: %+v", v)
		}
	}
}

func TestInlinedCallsAreCounted(t *testing.T) {
	tab := file(t, build(t, "results.go"))
	for fn, want := range map[string]int{"main.Inlined": 1, "main.Int": 0} {
		if n, known := tab.Inlined(one(t, tab, fn).Addr); n != want || !known {
			t.Errorf("%s was inlined %d times, %v, want %d", fn, n, known, want)
		}
	}
	c := file(t, build(t, "inlined.c", "-g", "-O2"))
	for fn, want := range map[string]int{"twice": 3, "split": 0} {
		if n, known := c.Inlined(one(t, c, fn).Addr); n != want || !known {
			t.Errorf("%s was inlined %d times, %v, want %d", fn, n, known, want)
		}
	}
	at := one(t, tab, "main.Inlined").Addr
	d, err := tab.module(at).img.dwarfOf(tab)
	if err != nil {
		t.Fatal(err)
	}
	var one inlining
	short := d.entriesAt(0)
	short.left = 1
	if one.read(short); one.isAll {
		t.Error("one entry of the debug information told everything")
	}
	if _, known := tab.Inlined(0); known {
		t.Error("address 0 is known")
	}
}

func TestAFunctionOfWhichNothingIsLeftIsSaidToBeInlined(t *testing.T) {
	tab := file(t, build(t, "results.go"))
	for name, inlined := range map[string]bool{"internal/byteorder.LEUint64": true, "internal/abi.NoEscapee": false, "nosuch.NoEscape": false, "a": false, "": false} {
		_, err := tab.Resolve(t.Context(), name)
		if got := err != nil && strings.Contains(err.Error(), "inlined every call"); got != inlined || inlined && !errors.Is(err, ErrUnknownSymbol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

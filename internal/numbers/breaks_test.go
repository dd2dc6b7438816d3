package numbers

import (
	"debug/dwarf"
	"debug/elf"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/symbols"
)

//go:embed testdata/breaks.py
var gdbBreaks []byte

// TestGdbStopsInTheSameCopies: each function of a program has the same copies, its own code and those in its callers, to gdb and us: the places of
// `break f`, and ours of f. gdb's are behind prologues, so the code that they are in is compared.
func TestGdbStopsInTheSameCopies(t *testing.T) {
	seed := testprog.Seed(t, 20261201)
	functions, places := 0, 0
	for i, x := range []struct {
		maker
		source string
	}{
		{maker{name: "gcc", suffix: ".c", levels: [][]string{{"-g", "-w", "-O2"}, {"-g", "-w", "-O2", "-flto"}}}, ""},
		{maker{name: "clang", suffix: ".c", levels: [][]string{{"-g", "-w", "-O2"}}}, ""},
		{maker{name: "g++", suffix: ".cc", levels: [][]string{{"-g", "-O2"}}}, styleCXX},
		{maker{name: "clang++", suffix: ".cc", levels: [][]string{{"-g", "-O2", "-std=c++17"}}}, styleCXX},
	} {
		for j, flags := range x.levels {
			if x.suffix == ".c" {
				x.source = (&localsGen{Rand: rand.New(rand.NewPCG(seed, uint64(10*i+j)))}).program()
			}
			b := &breaking{looking: looking{T: t, script: gdbBreaks, what: fmt.Sprintf("GOKPROBE_SEED=%d %s %v", seed, x.name, flags)}, file: "random" + x.suffix}
			b.answer = b.told
			bin := x.compile(t, flags, x.source)
			b.copies = readCopies(t, bin)
			b.run(bin)
			functions, places = functions+b.functions, places+b.places
		}
	}
	t.Logf("%d copies of %d functions are the same", places, functions)
	if functions < 60 || places < functions {
		t.Errorf("%d copies of %d functions were compared", places, functions)
	}
}

// breaking is a program that gdb runs, and whose functions are compared.
type breaking struct {
	looking
	file              string
	copies            copies
	functions, places int // compared
}

func (b *breaking) told(text []byte) any {
	var said struct {
		Names     []string
		Name, Why string
		Places    []arch.Addr
	}
	switch err := json.Unmarshal(text, &said); {
	case len(text) == 0:
		return map[string]string{"file": b.file}
	case err != nil:
		b.Fatal(err)
	case said.Name == "":
		return said.Names
	}
	b.compare(said.Name, said.Why, said.Places)
	return nil
}

// ours are our places of a function: of all that are called so, and where their calls were inlined.
func (b *breaking) ours(name string) (out []arch.Addr) {
	found, err := b.table.Resolve(b.Context(), name)
	var many *symbols.AmbiguousError
	if errors.As(err, &many) {
		found = many.Candidates
	}
	for _, f := range found {
		out = append(out, f.Addr)
	}
	calls, isAll, err := b.table.InlinedCalls(b.Context(), name)
	if err != nil || !isAll {
		b.Errorf("%s: %s: the inlined calls are not all known: %v", b.what, name, err)
	}
	for _, c := range calls {
		out = append(out, c.Addr)
	}
	return out
}

func (b *breaking) compare(name, why string, gdbs []arch.Addr) {
	b.functions++
	bias := arch.Addr(b.table.Modules()[0].Bias)
	theirs, mine := b.copies.of(name, gdbs, bias), b.copies.of(name, b.ours(name), bias)
	for die, at := range theirs {
		if _, ok := mine[die]; ok {
			b.places++
		} else {
			loc, _ := b.table.Lookup(at)
			b.Errorf("%s: gdb stops for %s at %s %s, in the copy at %#x; we do not", b.what, name, at, loc, die)
		}
	}
	for die, at := range mine {
		if _, ok := theirs[die]; !ok {
			loc, _ := b.table.Lookup(at)
			b.Errorf("%s: we stop for %s at %s %s, in the copy at %#x; gdb does not%s", b.what, name, at, loc, die, strings.TrimSuffix(": "+why, ": "))
		}
	}
}

// copies are the entries of functions with code in a program's debug information, and of inlined calls.
type copies struct {
	data *dwarf.Data
	list []copied
}

type copied struct {
	at     dwarf.Offset
	name   string // without those around it
	entry  uint64 // GCC's may be outside of the ranges: gdb stops at the first of these
	ranges [][2]uint64
}

func (c copied) has(v uint64) bool {
	return v == c.entry || slices.ContainsFunc(c.ranges, func(r [2]uint64) bool { return r[0] <= v && v < r[1] })
}

func readCopies(t *testing.T, bin string) (c copies) {
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c.data, err = f.DWARF(); err != nil {
		t.Fatal(err)
	}
	for r := c.data.Reader(); ; {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return c
		}
		if e.Tag != dwarf.TagSubprogram && e.Tag != dwarf.TagInlinedSubroutine {
			continue
		}
		if ranges, _ := c.data.Ranges(e); len(ranges) > 0 {
			entry, _ := e.Val(dwarf.AttrEntrypc).(uint64)
			c.list = append(c.list, copied{e.Offset, c.name(e), entry, ranges})
		}
	}
}

func (c copies) name(e *dwarf.Entry) string {
	for e != nil {
		if name, ok := e.Val(dwarf.AttrName).(string); ok {
			return name
		}
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			off, _ = e.Val(dwarf.AttrSpecification).(dwarf.Offset)
		}
		r := c.data.Reader()
		r.Seek(off)
		e, _ = r.Next()
	}
	return ""
}

// of finds the innermost copies of a function at places: of each the entry, 0 where there is none.
func (c copies) of(name string, places []arch.Addr, bias arch.Addr) map[dwarf.Offset]arch.Addr {
	out := map[dwarf.Offset]arch.Addr{}
	for _, at := range places {
		die := dwarf.Offset(0)
		for _, x := range c.list {
			if (name == x.name || strings.HasSuffix(name, "::"+x.name)) && x.has(uint64(at-bias)) {
				die = x.at // entries inside follow
			}
		}
		out[die] = at
	}
	return out
}

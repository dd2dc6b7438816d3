package symbols

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// cGen writes random C types and values of them.
type cGen struct {
	*rand.Rand
	types strings.Builder
	n     int
	seq   int // of the values
}

// genType is a type's spelling and how to write one of its values.
type genType struct {
	name, tail string // of a declaration: name, identifier, tail
	value      func() string
}

func (g *cGen) number(format string, limit int) func() string {
	return func() string {
		g.seq++
		return fmt.Sprintf(format, g.IntN(limit)-limit/2)
	}
}

// scalar is a random scalar type.
func (g *cGen) scalar() genType {
	all := []genType{
		{"signed char", "", g.number("%d", 250)},
		{"short", "", g.number("%d", 60000)},
		{"int", "", g.number("%d", 1<<31)},
		{"unsigned", "", g.number("(unsigned)%d", 1<<31)},
		{"long", "", g.number("%dL", 1<<62)},
		{"_Bool", "", g.number("%d > 0", 100)},
		{"void *", "", g.number("(void *)(%dL)", 1<<40)},
		{"float", "", g.number("%d.5f", 1000)},
		{"float", "", g.number("%d.25f", 1000)},
		{"double", "", g.number("%d.125", 100000)},
		{"double", "", g.number("%d.75", 100000)},
		{"long double", "", g.number("%d.5L", 100000)},
		{"__int128", "", g.number("(__int128)%d << 60", 1<<40)},
		{"_Float128", "", g.number("%d.5Q", 100000)},
		{"float _Complex", "", func() string { return g.number("%d.5f", 99)() + g.number(" + 1.0fi * %d", 99)() }},
		{"double _Complex", "", func() string { return g.number("%d.5", 99)() + g.number(" + 1.0i * %d", 99)() }},
		{"long double _Complex", "", func() string { return g.number("%d.5L", 99)() + g.number(" + 1.0Li * %d", 99)() }},
		{"v4", "", func() string { return "{" + g.number("%d, 2, 3, ", 99)() + g.number("%d}", 99)() }},
	}
	return all[g.IntN(len(all))]
}

// any is a random type of at most depth levels.
func (g *cGen) any(depth int) genType {
	if depth == 0 || g.IntN(4) == 0 {
		return g.scalar()
	}
	var fields, values []string
	members := make([]genType, 1+g.IntN(3))
	for i := range members {
		m := g.any(depth - 1)
		if g.IntN(6) == 0 && m.tail == "" {
			m.tail = "[1]"
			one := m.value
			m.value = func() string { return "{" + one() + "}" }
		}
		if g.IntN(12) == 0 {
			m = genType{"int", fmt.Sprintf(":%d", 1+g.IntN(31)), func() string { return "0" }}
		}
		members[i] = m
		fields = append(fields, fmt.Sprintf("%s f%d%s;", m.name, i, m.tail))
	}
	kind, attribute := "struct", ""
	switch g.IntN(10) {
	case 0:
		kind, members = "union", members[:1] // only the first is given a value
	case 1:
		attribute = " __attribute__((packed))"
	}
	g.n++
	name := fmt.Sprintf("%s t%d", kind, g.n)
	fmt.Fprintf(&g.types, "%s%s { %s };\n", kind+attribute, fmt.Sprintf(" t%d", g.n), strings.Join(fields, " "))
	return genType{name, "", func() string {
		values = values[:0]
		for _, m := range members {
			values = append(values, m.value())
		}
		return "{" + strings.Join(values, ", ") + "}"
	}}
}

// program is a program that returns n values of random types from functions f0, f1 ….
// The values themselves are g0, g1 ….
func (g *cGen) program(n int) string {
	var funcs, calls strings.Builder
	for i := range n {
		t := g.any(1 + g.IntN(3))
		fmt.Fprintf(&funcs, "%s g%d = %s;\n__attribute__((noinline, noclone)) %s f%d(void) { __asm__ volatile(\"\" ::: \"memory\"); return g%d; }\n", t.name, i, t.value(), t.name, i, i)
		fmt.Fprintf(&calls, "\tout%d = f%d();\n", i, i)
		fmt.Fprintf(&funcs, "%s out%d;\n", t.name, i)
	}
	return "typedef int v4 __attribute__((vector_size(16)));\n" + g.types.String() + funcs.String() + "int main(void)\n{\n" + calls.String() + "\treturn 0;\n}\n"
}

// The oracle is the compiler: what a function of a random type returns is what lies
// in the variable that it returns.
func TestRandomTypesAreReturnedWhereTheCompilerPutsThem(t *testing.T) {
	const funcs = 150
	for _, c := range []struct {
		seed  uint64 // one that has found a mistake: a union within a union; bit fields in an array, out of their alignment
		flags []string
	}{{10800308948037258660, []string{"-O1"}}, {11884918278796237262, []string{"-O2", "-gdwarf-4"}}} {
		seed, flags := testprog.Seed(t, c.seed), c.flags
		g := &cGen{Rand: rand.New(rand.NewPCG(seed, 1))}
		dir := t.TempDir()
		src, bin := filepath.Join(dir, "random.c"), filepath.Join(dir, "prog")
		if err := os.WriteFile(src, []byte(g.program(funcs)), 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, "gcc", append([]string{"-g", "-w", "-no-pie", "-o", bin, src}, flags...)...)
		globals := variables(t, bin)
		x := trace(t, bin, "main")
		for i := range funcs {
			entry := one(t, x.tab, fmt.Sprintf("f%d", i)).Addr
			x.runTo(entry)
			x.toReturn()
			results, err := x.tab.Results(entry)
			if err != nil || len(results) != 1 {
				t.Fatalf("f%d: %v, %v", i, results, err)
			}
			p := results[0]
			raw := make([]byte, p.typ.size)
			if err := x.mem.ReadMemory(globals[fmt.Sprintf("g%d", i)], raw); err != nil {
				t.Fatal(err)
			}
			f := &formatter{mem: x.mem, budget: fieldsAlways, bounds: Bounds{}.made()}
			want := f.format(p.typ, raw, 0)
			if got := p.Value(x.vectorRegs(), x.mem); got.Text != want.Text || got.Err != nil {
				t.Errorf("seed %d, %v: f%d gives %s, not %s (%v): %s", seed, flags, i, got.Text, want.Text, got.Err, spelled(p.typ))
			}
		}
	}
}

// spelled is a type with what it holds.
func spelled(t *dtype) string {
	if t.kind != typeStruct && t.kind != typeUnion {
		return t.name
	}
	var fields []string
	for _, f := range t.field {
		fields = append(fields, fmt.Sprintf("%d: %s", f.off, spelled(f.typ)))
	}
	return fmt.Sprintf("%s(%d){%s}", t.name, t.size, strings.Join(fields, ", "))
}

// variables are the addresses of a file's global variables.
func variables(t *testing.T, path string) map[string]arch.Addr {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]arch.Addr{}
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_OBJECT {
			out[s.Name] = arch.Addr(s.Value)
		}
	}
	return out
}

package kprobes_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// scalars are C's types, how a function prints one and how its values are written.
var scalars = []struct {
	c, put string
	g      reflect.Type
}{
	{"signed char", "Z", reflect.TypeFor[int8]()},
	{"unsigned char", "U", reflect.TypeFor[uint8]()},
	{"short", "Z", reflect.TypeFor[int16]()},
	{"unsigned short", "U", reflect.TypeFor[uint16]()},
	{"int", "Z", reflect.TypeFor[int32]()},
	{"unsigned", "U", reflect.TypeFor[uint32]()},
	{"long", "Z", reflect.TypeFor[int64]()},
	{"unsigned long", "U", reflect.TypeFor[uint64]()},
	{"void *", "U(long)", reflect.TypeFor[kprobes.Ptr]()},
	{"_Bool", "Z", reflect.TypeFor[bool]()},
	{"float", "F", reflect.TypeFor[float32]()},
	{"double", "D", reflect.TypeFor[float64]()},
	{"const char *", "S", reflect.TypeFor[string]()},
}

// cgen writes a C program of random functions that are called with random arguments.
type cgen struct {
	*rand.Rand
	described           bool // by debug information, so layouts may be other than Go's types tell
	types, funcs, calls strings.Builder
	structs             int
	entries             []reflect.Type
}

// value is a random type, in C and in Go; text is code that prints one that expr names, and
// literal a value of it.
type value struct {
	c, dims string
	g       reflect.Type
	text    func(expr string) string
	literal func() string
}

func (r *cgen) scalar() value {
	x := scalars[r.IntN(len(scalars))]
	v := value{c: x.c, g: x.g}
	v.text = func(expr string) string { return fmt.Sprintf("%s(%s);", x.put, expr) }
	if x.put == "U(long)" {
		v.text = func(expr string) string { return fmt.Sprintf("U((long)%s);", expr) }
	}
	v.literal = func() string {
		switch x.put {
		case "S":
			return fmt.Sprintf("%q", strings.Repeat("text", r.IntN(4))+"!")
		case "F", "D":
			return fmt.Sprintf("(%s)%d.%d", x.c, r.Int32N(1<<30)-(1<<29), r.IntN(1000))
		}
		return fmt.Sprintf("(%s)%#x", x.c, r.Uint64())
	}
	return v
}

// array is an array of scalars or structures, for a field.
func (r *cgen) array(depth int) value {
	elem, n := r.any(depth), 1+r.IntN(4)
	v := value{c: elem.c, dims: fmt.Sprintf("[%d]%s", n, elem.dims), g: reflect.ArrayOf(n, elem.g)}
	v.text = func(expr string) (s string) {
		for i := range n {
			s += elem.text(fmt.Sprintf("%s[%d]", expr, i))
		}
		return s
	}
	v.literal = func() string { return braced(n, func(int) string { return elem.literal() }) }
	return v
}

func braced(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return "{ " + strings.Join(items, ", ") + " }"
}

func (r *cgen) structure(depth int) value {
	fields := make([]value, 1+r.IntN(4))
	goFields := make([]reflect.StructField, len(fields))
	def := ""
	for i := range fields {
		if fields[i] = r.any(depth + 1); r.IntN(4) == 0 {
			fields[i] = r.array(depth + 1)
		}
		goFields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: fields[i].g}
		def += fmt.Sprintf(" %s f%d%s;", fields[i].c, i, fields[i].dims)
	}
	r.structs++
	v := value{c: fmt.Sprintf("struct s%d", r.structs), g: reflect.StructOf(goFields)}
	fmt.Fprintf(&r.types, "%s {%s }%s;\n", v.c, def, r.attribute())
	v.text = func(expr string) (s string) {
		for i, f := range fields {
			s += f.text(fmt.Sprintf("%s.f%d", expr, i))
		}
		return s
	}
	v.literal = func() string {
		return "(" + v.c + ")" + braced(len(fields), func(i int) string { return fields[i].literal() })
	}
	return v
}

// attribute is one that changes a structure's layout and class.
func (r *cgen) attribute() string {
	if !r.described || r.IntN(3) > 0 {
		return ""
	}
	return []string{" __attribute__((packed))", " __attribute__((aligned(16)))", " __attribute__((aligned(32)))"}[r.IntN(3)]
}

func (r *cgen) any(depth int) value {
	if depth < 3 && r.IntN(3) == 0 {
		return r.structure(depth)
	}
	return r.scalar()
}

// function adds a function of up to 15 parameters and a call of it.
func (r *cgen) function() {
	var params, args []string
	var in []reflect.Type
	print := ""
	for i := range 1 + r.IntN(15) {
		v := r.any(0)
		params = append(params, fmt.Sprintf("%s a%d", v.c, i))
		args = append(args, v.literal())
		in = append(in, v.g)
		print += v.text(fmt.Sprintf("a%d", i))
	}
	name := fmt.Sprintf("f%d", len(r.entries))
	fmt.Fprintf(&r.funcs, "REAL void %s(%s)\n{\n\tGOT(%s, %s);\n}\n", name, strings.Join(params, ", "), name, print)
	fmt.Fprintf(&r.calls, "\t%s(%s);\n", name, strings.Join(args, ", "))
	r.entries = append(r.entries, reflect.FuncOf(in, nil, false))
}

// program compiles n random functions; a line of input has all of them called.
func (r *cgen) program(t *testing.T, n int, flags ...string) string {
	t.Helper()
	for range n {
		r.function()
	}
	headers, err := filepath.Abs("../internal/testprog/testdata")
	if err != nil {
		t.Fatal(err)
	}
	src := "#include \"jprobe.h\"\n" + r.types.String() + r.funcs.String() + `
int main(void)
{
	char command[8];
	say("ready");
	while (hear(command, sizeof command)) {
` + r.calls.String() + `	}
	return verdict();
}
`
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "random.c"), filepath.Join(dir, "random")
	if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-pthread", "-w", "-I", headers, "-o", bin, file}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return bin
}

// TestJprobesOfRandomPrototypes: the oracle is the C compiler.
func TestJprobesOfRandomPrototypes(t *testing.T) {
	seeds, functions := testsize.Rounds(1, 1, 20), testsize.Rounds(20, 60, 100)
	for seed := range uint64(seeds) {
		for _, flags := range [][]string{{"-g", "-O1", "-fno-var-tracking"}, {"-g0", "-O0"}} {
			t.Run(fmt.Sprint(seed, flags), func(t *testing.T) {
				r := &cgen{Rand: rand.New(rand.NewPCG(seed, 0)), described: flags[0] == "-g"}
				prog := testprog.Start(t, r.program(t, functions, flags...))
				s := attach(t, prog.PID(), kprobes.Options{})
				var said []string
				jps := make([]*kprobes.Jprobe, functions)
				for i, f := range r.entries {
					jps[i] = recorder(fmt.Sprintf("f%d", i), f, &said)
				}
				if err := s.RegisterJprobes(t.Context(), jps); err != nil {
					t.Fatal(err)
				}
				prog.Send("all")
				for i := range functions {
					if want := prog.Line(); at(said, i) != want {
						t.Errorf("%s gets\n %s, the function has\n %s", r.entries[i], at(said, i), want)
					}
				}
				closeSession(t, s)
				prog.CheckClean()
				wantRight(t, prog)
			})
		}
	}
}

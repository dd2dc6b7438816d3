package numbers

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/symbols"
)

//go:embed testdata/locals.py
var gdbLocals []byte

// TestGdbGivesTheSameVariables: at each statement of random programs that gdb runs, in the same stop, the parameters and local variables which both
// know have the same values.
func TestGdbGivesTheSameVariables(t *testing.T) {
	seed := testprog.Seed(t, 20261128)
	var all locals
	for round := range testsize.Rounds(1, 1, 20) {
		for i, compiler := range []string{"gcc", "clang"} {
			for j, flags := range append(cLevels[:len(cLevels):len(cLevels)], []string{"-g", "-w", "-O2", "-fno-omit-frame-pointer", "-ffunction-sections"}, []string{"-gdwarf-4", "-w", "-O2"}) {
				r := rand.New(rand.NewPCG(seed, uint64(100*round+10*i+j)))
				l := &looking{T: t, locals: &all, what: fmt.Sprintf("GOKPROBE_SEED=%d round %d %s %v", seed, round, compiler, flags)}
				l.run(maker{name: compiler, suffix: ".c"}.compile(t, flags, (&localsGen{Rand: r}).program()))
			}
		}
	}
	t.Logf("%d stops: %d values are the same, and %d that are reached from them; gdb does not know %d, we do not know %d, neither knows %d", all.stops, all.same, all.reached, all.ours, all.gdbs, all.neither)
	if least := testsize.Rounds(5000, 5000, 100000); all.same < least || all.reached < least/4 {
		t.Errorf("%d values were compared, and %d that are reached from them", all.same, all.reached)
	}
}

type locals struct{ stops, same, ours, gdbs, neither, reached int }

// looking is a program that gdb runs, and we look at.
type looking struct {
	*testing.T
	*locals
	what  string
	table *symbols.Table
	mem   arch.Memory
}

// stop is what gdb tells where it has stopped.
type stop struct {
	At        arch.Addr
	Registers struct {
		General map[string]uint64
		Vectors []string
	}
	Values map[string]struct {
		said
		Param bool
	}
	Paths map[string]said
}

func (l *looking) run(bin string) {
	dir := l.TempDir()
	for name, b := range map[string][]byte{"values.py": gdbValues, "locals.py": gdbLocals} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			l.Fatal(err)
		}
	}
	gdb := exec.CommandContext(l.Context(), "gdb", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
		"-x", filepath.Join(dir, "values.py"), "-x", filepath.Join(dir, "locals.py"), bin)
	var errs bytes.Buffer
	gdb.Stderr = &errs
	in, err1 := gdb.StdinPipe()
	out, err2 := gdb.StdoutPipe()
	if err1 != nil || err2 != nil {
		l.Fatal(err1, err2)
	}
	if err := gdb.Start(); err != nil {
		l.Fatal(err)
	}
	told := false
	for lines := bufio.NewReader(out); ; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var pid int
		answer := "go on"
		switch n, _ := fmt.Sscanf(string(text), "pid %d", &pid); {
		case n == 1:
			l.open(pid)
			defer l.table.Close()
			answer = l.places()
		case string(text) == "told\n":
			told = true
		case text[0] == '{':
			l.look(text)
		default:
			continue
		}
		_, _ = io.WriteString(in, answer+"\n")
	}
	if err := gdb.Wait(); err != nil || !told {
		l.Fatalf("%s: gdb has not told everything: %v\n%s", l.what, err, &errs)
	}
}

// places lists all statements, as gdb reads them.
func (l *looking) places() string {
	var list []arch.Addr
	for line := range 1000 {
		found, _ := l.table.Resolve(l.Context(), fmt.Sprintf("random.c:%d", line))
		for _, f := range found {
			list = append(list, f.Addr)
		}
	}
	slices.Sort(list)
	b, err := json.Marshal(slices.Compact(list))
	if err != nil {
		l.Fatal(err)
	}
	return string(b)
}

func (l *looking) open(pid int) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = mem.Close() })
	l.mem = fileMemory{mem}
	if l.table, err = symbols.Open(pid, l.mem); err != nil {
		l.Fatal(err)
	}
}

// look compares what gdb says with what we see.
func (l *looking) look(text []byte) {
	var s stop
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&s); err != nil {
		l.Fatalf("%v: %s", err, text)
	}
	regs := vectorRegs{Regs: host.Arch.NewRegs(), vectors: s.Registers.Vectors}
	for name, v := range s.Registers.General {
		regs.Set(name, v)
	}
	if f, _ := l.table.Function(s.At); f.Start == s.At {
		return // where gdb goes by what holds behind the prologue
	}
	l.stops++
	seen, err := l.table.Variables(s.At)
	if err != nil {
		l.Errorf("%s: %s: %v", l.what, s.At, err)
		return
	}
	l.reach(&s, seen, regs)
	ours := map[string]said{}
	for i, p := range slices.Concat(seen.Params, seen.Locals) {
		if i < len(seen.Params) && slices.ContainsFunc(seen.Locals, func(q symbols.Param) bool { return q.Name == p.Name }) {
			continue // it is hidden
		}
		if gdbs, met := s.Values[p.Name]; met && gdbs.Why == "" && gdbs.Param != (i < len(seen.Params)) {
			l.Errorf("%s: %s: to gdb %s is a parameter: %t", l.what, s.At, p.Name, gdbs.Param)
		}
		v := p.Value(regs, l.mem)
		ours[p.Name] = said{Value: v.JSON}
		if v.Err != nil {
			ours[p.Name] = said{Why: v.Err.Error()}
		}
	}
	for name, gdbs := range s.Values {
		mine, named := ours[name]
		weKnow, gdbKnows := named && mine.Why == "", gdbs.Why == ""
		switch {
		case weKnow && gdbKnows && !same(decoded(l.T, mine.Value), gdbs.Value):
			loc, _ := l.table.Lookup(s.At)
			file, line, _ := l.table.Line(s.At)
			l.Errorf("%s: at %s (%s:%d): %s is %s, and to gdb %s", l.what, loc, file, line, name, asJSON(mine.Value), asJSON(gdbs.Value))
		case weKnow && gdbKnows:
			l.same++
		case weKnow:
			l.ours++
			l.Errorf("%s: at %s: %s is %s, which gdb does not know: %s", l.what, s.At, name, asJSON(mine.Value), gdbs.Why)
		case gdbKnows:
			l.gdbs++
		default:
			l.neither++
		}
	}
}

// reach compares what may be reached from variables.
func (l *looking) reach(s *stop, seen symbols.Variables, regs arch.Regs) {
	for text, gdbs := range s.Paths {
		path, ok := arg.ParsePath(text)
		if !ok {
			l.Fatalf("%s is no path", text)
		}
		all := slices.Concat(seen.Locals, seen.Params) // a local variable hides a parameter
		i := slices.IndexFunc(all, func(p symbols.Param) bool { return p.Name == path.Name })
		if i < 0 {
			continue
		}
		end, err := all[i].At(text, values.Steps(path.Steps)...)
		var v symbols.Value
		if err == nil {
			v = end.Value(regs, l.mem)
			err = v.Err
		}
		switch {
		case err == nil && gdbs.Why != "":
			l.Errorf("%s: at %s: %s is %s, which gdb does not know: %s", l.what, s.At, text, v.Text, gdbs.Why)
		case err == nil && !same(decoded(l.T, v.JSON), gdbs.Value):
			l.Errorf("%s: at %s: %s is %s, and to gdb %s", l.what, s.At, text, v.Text, asJSON(gdbs.Value))
		case err == nil:
			l.reached++
		case gdbs.Why == "" && all[i].Value(regs, l.mem).Err == nil && !errors.Is(err, symbols.ErrNoAddress):
			l.Errorf("%s: at %s: %s is not known, though %s is: %v", l.what, s.At, text, path.Name, err)
		}
	}
}

// fileMemory is a process's memory.
type fileMemory struct{ io.ReaderAt }

func (m fileMemory) ReadMemory(at arch.Addr, p []byte) error {
	_, err := m.ReadAt(p, int64(at))
	return err
}

func (m fileMemory) WriteMemory(arch.Addr, []byte) error { return os.ErrPermission }

// vectorRegs are registers as gdb has told them.
type vectorRegs struct {
	arch.Regs
	vectors []string // hexadecimal
}

// Vector implements symbols.FloatRegs.
func (r vectorRegs) Vector(n int) (v [16]byte, ok bool) {
	b, err := hex.DecodeString(r.vectors[n])
	if err != nil || len(b) != len(v) {
		return v, false
	}
	slices.Reverse(b)
	return [16]byte(b), true
}

// localsGen writes a random program whose functions have many local variables.
type localsGen struct {
	*rand.Rand
	out     strings.Builder
	names   []string // in scope, all of numbers
	structs []string // in scope
	n       int
}

var localTypes = []string{"signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long", "unsigned long", "float", "double"}

func (g *localsGen) program() string {
	g.out.WriteString(`struct own { int a; long b; short c[3]; double d; unsigned f : 5; int g : 7; struct { char x; short y[2][3]; } in; char t[5]; };
volatile long sink;
__attribute__((noinline)) void keep(void *p) { sink += *(unsigned char *)p; }
__attribute__((noinline)) long mix(long v) { return v * 31 + (sink & 1); }
`)
	for i := range 3 {
		t, u := g.typ(), g.typ()
		fmt.Fprintf(&g.out, "static inline %s helper%d(%s ha%d, %s hb%d)\n{\n\t%s hr%d = ha%d + 2 * hb%d;\n\tsink += (long)hr%d;\n\thr%d = hr%d - (%s)mix(hb%d);\n\treturn hr%d;\n}\n",
			t, i, t, i, u, i, t, i, i, i, i, i, i, t, i, i)
	}
	g.tails()
	const count = 6
	for i := range count {
		g.function(i)
	}
	g.out.WriteString("int main(void)\n{\n\tlong sum = 0;\n\tfor (int k = 0; k < 2; k++) {\n")
	for i := range count {
		fmt.Fprintf(&g.out, "\t\tsum += f%d(k + %d, sum, %d.5);\n", i, g.IntN(100), g.IntN(50))
	}
	fmt.Fprintf(&g.out, "\t\tsum += ping(k + 3, sum) + pong(k, %d) + last(k + 1, sum);\n\t\tsum += first(sum, k) + many(k, sum, %d, k + 7, sum + 5, 6, k, 8);\n", g.IntN(50), g.IntN(50))
	g.out.WriteString("\t}\n\tsink = sum;\n\treturn 0;\n}\n")
	return g.out.String()
}

// tails writes functions that call others at their ends, by jumps when they are optimized: what the functions' callers say of parameters need not hold there.
// The last one has parameters in registers and on the stack.
func (g *localsGen) tails() {
	one := g.IntN(90)
	fmt.Fprintf(&g.out, `__attribute__((noinline)) long ping(long n, long t);
__attribute__((noinline)) long pong(long n, long t)
{
	long u = mix(t) + %d;
	if (n <= 0)
		return u;
	sink += u;
	return ping(n - 1, u + 1);
}
__attribute__((noinline)) long ping(long n, long t)
{
	long u = mix(n) - %d;
	sink += u;
	if (n <= 0)
		return u;
	return pong(n - 1, t + 1);
}
__attribute__((noinline)) long last(long n, long t)
{
	long u = mix(3);
	sink += u;
	return u + %d;
}
__attribute__((noinline)) long first(long n, long t)
{
	sink += mix(n);
	return last(t, n + 2);
}
__attribute__((noinline)) long many(int a, long b, short c, unsigned d, long e, int f, long g, int h)
{
	long u = mix(a);
	sink += u;
	u = mix(u);
	sink += u + e;
	return mix(u + 2);
}
`, one, g.IntN(90), g.IntN(90))
}

func (g *localsGen) typ() string { return localTypes[g.IntN(len(localTypes))] }

func (g *localsGen) function(i int) {
	fmt.Fprintf(&g.out, "__attribute__((noinline)) long f%d(%s pa, long pb, double pc)\n{\n", i, localTypes[g.IntN(8)])
	g.names = []string{"pa", "pb", "pc"}
	g.block(1, 3+g.IntN(4))
	fmt.Fprintf(&g.out, "\treturn mix((long)(%s));\n}\n", g.sum())
}

// sum is an expression over some names; its numbers stay small.
func (g *localsGen) sum() string {
	text := fmt.Sprint(g.IntN(100))
	for range 1 + g.IntN(3) {
		text += fmt.Sprintf(" + (long)%s %% 97", g.names[g.IntN(len(g.names))])
	}
	return text
}

// block writes n statements.
func (g *localsGen) block(depth, n int) {
	tab := strings.Repeat("\t", depth)
	scope, structs := len(g.names), len(g.structs)
	for range n {
		g.n++
		name := fmt.Sprintf("v%d", g.n)
		switch k := g.IntN(12); {
		case k < 4:
			fmt.Fprintf(&g.out, "%s%s %s = (%s);\n", tab, g.typ(), name, g.sum())
			g.names = append(g.names, name)
		case k == 4:
			fmt.Fprintf(&g.out, "%sstatic int %s;\n%s%s += (int)(%s);\n", tab, name, tab, name, g.sum())
			g.names = append(g.names, name)
		case k == 5:
			fmt.Fprintf(&g.out, "%sstruct own s%d = { .a = (int)(%s), .b = %s, .c = { 1, %d, 3 }, .f = 9, .g = -%d, .in = { 'x', { { 1, 2, 3 }, { 4, %d, 6 } } }, .t = \"text\" };\n%skeep(&s%d);\n",
				tab, g.n, g.sum(), g.sum(), g.IntN(100), g.IntN(60), g.IntN(100), tab, g.n)
			g.structs = append(g.structs, fmt.Sprintf("s%d", g.n))
			g.names = append(g.names, fmt.Sprintf("s%d.a", g.n), fmt.Sprintf("s%d.b", g.n))
		case k == 9:
			fmt.Fprintf(&g.out, "%slong %s = %s;\n%skeep(&%s);\n", tab, name, g.sum(), tab, name)
			g.names = append(g.names, name)
		case k == 10 && len(g.structs) > 0:
			fmt.Fprintf(&g.out, "%sstruct own *%s = &%s, **q%s = &%s;\n%skeep(%s);\n%skeep(q%s);\n", tab, name, g.structs[g.IntN(len(g.structs))], name, name, tab, name, tab, name)
			g.names = append(g.names, name+"->a")
		case k == 6:
			fmt.Fprintf(&g.out, "%ssink += (long)helper%d(%s, %s);\n", tab, g.IntN(3), g.sum(), g.sum())
		case k == 7 && depth < 4:
			fmt.Fprintf(&g.out, "%sfor (int i%d = 0; i%d < %d; i%d++) {\n", tab, g.n, g.n, 1+g.IntN(3), g.n)
			g.names = append(g.names, fmt.Sprintf("i%d", g.n))
			g.block(depth+1, 2+g.IntN(3))
			g.names = g.names[:len(g.names)-1]
			fmt.Fprintf(&g.out, "%s}\n", tab)
		case k == 8 && depth < 4:
			hidden := g.names[g.IntN(len(g.names))]
			if strings.ContainsAny(hidden, ".>") || strings.HasPrefix(hidden, "p") {
				hidden = "pb"
			}
			fmt.Fprintf(&g.out, "%s{\n%s\tlong %s = %d;\n", tab, tab, hidden, g.IntN(1000))
			g.block(depth+1, 1+g.IntN(3))
			fmt.Fprintf(&g.out, "%s\tsink += %s;\n%s}\n", tab, hidden, tab)
		default:
			fmt.Fprintf(&g.out, "%ssink += %s;\n", tab, g.sum())
		}
	}
	g.names, g.structs = g.names[:max(scope, 3)], g.structs[:structs]
}

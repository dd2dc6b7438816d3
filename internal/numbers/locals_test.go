package numbers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// TestGdbGivesTheSameVariables: at each statement of random programs that gdb runs, in the same stop, the parameters and local variables which both
// know have the same values.
func TestGdbGivesTheSameVariables(t *testing.T) {
	seed := testprog.Seed(t, 20261128)
	var all locals
	for round := range testsize.Rounds(1, 1, 20) {
		for i, compiler := range []string{"gcc", "clang"} {
			for j, flags := range append(cLevels[:len(cLevels):len(cLevels)], []string{"-g", "-w", "-O2", "-fno-omit-frame-pointer", "-ffunction-sections"}, []string{"-gdwarf-4", "-w", "-O2"}, []string{"-g", "-w", "-O3", "-flto"}) {
				r := rand.New(rand.NewPCG(seed, uint64(100*round+10*i+j)))
				l := &looking{T: t, locals: &all, what: fmt.Sprintf("GOKPROBE_SEED=%d round %d %s %v", seed, round, compiler, flags)}
				l.choose = func() visit { return l.statements("random.c") }
				l.run(maker{name: compiler, suffix: ".c"}.compile(t, flags, (&localsGen{Rand: r}).program()))
			}
		}
	}
	t.Log(&all)
	if least := testsize.Rounds(5000, 5000, 100000); all.same < least || all.reached < least/4 {
		t.Errorf("%d values were compared, and %d that are reached from them", all.same, all.reached)
	}
}

// statements are all statements of a file.
func (l *looking) statements(file string) visit {
	var list []arch.Addr
	for line := range 1000 {
		found, _ := l.table.Resolve(l.Context(), fmt.Sprintf("%s:%d", file, line))
		for _, f := range found {
			list = append(list, f.Addr)
		}
	}
	slices.Sort(list)
	return visit{Places: slices.Compact(list), Hits: 3}
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

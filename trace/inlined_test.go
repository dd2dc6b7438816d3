package trace_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// genInlined writes a random C program of n functions that count their calls themselves and sum up their arguments, most of which compilers inline: each
// calls some of those before it, in a loop, under a condition, or just so. It runs once for each line that it reads, and prints counts and sums.
func genInlined(r *rand.Rand, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#include <stdio.h>\nstatic volatile long calls[%d];\nstatic volatile unsigned sums[%d], sink;\n", n, n)
	for i := range n {
		inline := []string{"static inline", "static", "static", "", "static inline __attribute__((always_inline))"}[r.IntN(5)]
		fmt.Fprintf(&b, "%s unsigned fn_%d(unsigned x)\n{\n\tunsigned y = x * %d + %d;\n\tcalls[%d]++;\n\tsums[%d] += x;\n", inline, i, r.IntN(9)+2, r.IntN(99), i, i)
		for range min(i, r.IntN(3)) {
			callee := i - 1 - r.IntN(min(i, 4))
			switch r.IntN(6) {
			case 3: // which is unrolled
				fmt.Fprintf(&b, "\tfor (unsigned i = 0; i < %d; i++)\n\t\ty += fn_%d(y + i);\n", r.IntN(4)+2, callee)
			case 4: // what follows may be split off
				fmt.Fprintf(&b, "\tif (y & 1)\n\t\treturn y;\n\ty += fn_%d(x);\n", callee)
			case 0:
				fmt.Fprintf(&b, "\tfor (unsigned i = 0; i < y %% %d; i++)\n\t\ty += fn_%d(y + i);\n", r.IntN(3)+2, callee)
			case 1:
				fmt.Fprintf(&b, "\ty += fn_%d(%d);\n", callee, r.IntN(99)-9)
			case 2:
				fmt.Fprintf(&b, "\tif (y & %d)\n\t\ty ^= fn_%d(y);\n", 1<<r.IntN(3), callee)
			default:
				fmt.Fprintf(&b, "\ty += fn_%d(x + %d);\n", callee, r.IntN(9))
			}
		}
		b.WriteString("\tsink = y;\n\treturn y;\n}\n")
	}
	b.WriteString("int main(void)\n{\n\tchar line[64];\n\tunsigned seed;\n\tputs(\"ready\");\n\tfflush(stdout);\n\twhile (fgets(line, sizeof line, stdin)) {\n\t\tsscanf(line, \"%u\", &seed);\n")
	for i := range n {
		if r.IntN(3) == 0 || i == n-1 {
			fmt.Fprintf(&b, "\t\tseed += fn_%d(seed);\n", i)
		}
	}
	fmt.Fprintf(&b, "\t\tprintf(\"calls\");\n\t\tfor (int i = 0; i < %d; i++)\n\t\t\tprintf(\" %%ld\", calls[i]);\n\t\tprintf(\" sums\");\n\t\tfor (int i = 0; i < %d; i++)\n\t\t\tprintf(\" %%u\", sums[i]);\n\t\tputs(\"\");\n\t\tfflush(stdout);\n\t}\n\treturn 0;\n}\n", n, n)
	return b.String()
}

// inlinedProgram is a random one, compiled by cc.
func inlinedProgram(t *testing.T, r *rand.Rand, cc string) (bin, how string) {
	t.Helper()
	level := []string{"-O1", "-O2", "-O3"}[r.IntN(3)]
	return compiled(t, cc, "inlined", genInlined(r, inlinedFunctions), level, "-w"), cc + " " + level
}

// compiled is a program of C by its name.
func compiled(t *testing.T, cc, name, text string, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(bin+".c", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, append(flags, "-g", "-o", bin, bin+".c")...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	return bin
}

const inlinedFunctions = 14

// TestInlinedCallsAreCounted: random programs know how often each of their functions was called. GCC tells where bodies begin, so hits are calls
// but where it has made copies, which is told. Of clang's programs there may be fewer hits, mostly where that has been told (one function in a hundred was
// seen where it was not).
func TestInlinedCallsAreCounted(t *testing.T) {
	testprog.Need(t, "gcc", "clang")
	seed := testprog.Seed(t, 1)
	exact, told, untold, inlined := 0, 0, 0, 0
	for round := range testsize.Rounds(2, 12, 400) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		bin, how := inlinedProgram(t, r, []string{"gcc", "clang"}[round%2])
		p, said := testprog.Start(t, bin), new(logged)
		s := attach(t, p, trace.Log(slog.New(said)))
		probes := map[int]*trace.Probe{}
		for i := range inlinedFunctions {
			switch pr, err := s.Probe(fmt.Sprintf("inlined:fn_%d", i), trace.Inlined(), trace.Count()); {
			case err == nil:
				probes[i] = pr
				inlined += len(pr.Stats().Places)
			case !errors.Is(err, symbols.ErrUnknownSymbol):
				t.Errorf("%s, round %d, fn_%d: %v", how, round, i, err)
			}
		}
		counts := strings.Fields(p.Do(fmt.Sprint(r.IntN(1000)), "calls"))[1:][:inlinedFunctions]
		for i, count := range counts {
			want, got := uint64(0), uint64(0)
			fmt.Sscan(count, &want)
			if pr := probes[i]; pr != nil {
				got = pr.Stats().Hits
			}
			switch mayDiffer := strings.Contains(said.String(), fmt.Sprintf("fn_%d: the debug information does not tell", i)); {
			case mayDiffer && got <= want:
				told++
			case got < want && strings.HasPrefix(how, "clang"):
				untold++
			case got != want:
				t.Errorf("%s, round %d, fn_%d: %d hits of %d calls", how, round, i, got, want)
			default:
				exact++
			}
		}
		ends(t, p, s)
	}
	if t.Logf("%d functions exact, %d told to be uncertain, %d others; %d places", exact, told, untold, inlined); told > exact/3 || untold > exact/30 {
		t.Errorf("too many are uncertain")
	}
}

// TestInlinedCallsHaveTheirArguments: where all arguments of a function's calls are known, their sum is the one that the program has made.
func TestInlinedCallsHaveTheirArguments(t *testing.T) {
	testprog.Need(t, "gcc", "clang")
	seed := testprog.Seed(t, 1)
	known, unknown, compared := 0, 0, 0
	for round := range testsize.Rounds(2, 8, 400) {
		r := rand.New(rand.NewPCG(seed, uint64(1000+round)))
		bin, how := inlinedProgram(t, r, []string{"gcc", "clang"}[round%2])
		p := testprog.Start(t, bin)
		s := attach(t, p, trace.Log(slog.New(new(logged))))
		probes := map[int]*trace.Probe{}
		for i := range inlinedFunctions {
			if pr, err := s.Probe(fmt.Sprintf("inlined:fn_%d", i), trace.Inlined(), trace.Args()); err == nil {
				probes[i] = pr
			} else if !errors.Is(err, symbols.ErrUnknownSymbol) {
				t.Errorf("%s, round %d, fn_%d: %v", how, round, i, err)
			}
		}
		told := strings.Fields(p.Do(fmt.Sprint(r.IntN(1000)), "calls"))[1:]
		for i, pr := range probes {
			var calls, hits, want uint64
			fmt.Sscan(told[i], &calls)
			fmt.Sscan(told[inlinedFunctions+1+i], &want)
			got, whole := uint32(0), true
			if err := pr.Close(); err != nil {
				t.Error(err)
			}
			for h := range pr.Hits() {
				if v, ok := arg(h, "x"); ok {
					known++
					got += uint32(v)
				} else {
					unknown++
					whole = false
				}
				hits++
			}
			if st := pr.Stats(); st.Hits != hits+st.Lost {
				t.Errorf("%s, round %d, fn_%d: %d hits were counted, %d lost, %d came", how, round, i, st.Hits, st.Lost, hits)
			}
			if !whole || hits != calls {
				continue
			}
			if compared++; uint64(got) != want {
				t.Errorf("%s, round %d, fn_%d: the arguments of %d calls sum up to %d, want %d", how, round, i, calls, got, want)
			}
		}
		ends(t, p, s)
	}
	if t.Logf("%d arguments known, %d not; %d sums compared", known, unknown, compared); known < unknown || compared < 20 {
		t.Errorf("too few are known")
	}
}

// arg is an argument of a hit as a number, if it is known.
func arg(h *trace.Hit, name string) (v int64, known bool) {
	for _, a := range h.Args {
		if a.Name == name {
			return a.Int()
		}
	}
	return 0, false
}

// twoKinds has a function of which every call is inlined, and one that has code of its own as well.
const twoKinds = `#include <stdio.h>
static inline __attribute__((always_inline)) int square(int x) { volatile int y = x * x; return y; }
inline __attribute__((always_inline)) int twice(int x) { return square(x) + square(x + 1) * 2; }
extern int twice(int);
int (*volatile pointer)(int) = twice;
int main(void)
{
	char line[64];
	int sum = 0;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		sum += twice(sum) + pointer(3) + square(5);
		printf("done %d\n", sum);
		fflush(stdout);
	}
	return 0;
}
`

// TestAnInlinedFunctionIsProbedAtItsBodies: without being asked for if there is nothing else, with being asked for beside its own code. What is not
// seen is told.
func TestAnInlinedFunctionIsProbedAtItsBodies(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		bin := compiled(t, cc, "kinds", twoKinds, "-O2")
		p, said := testprog.Start(t, bin), new(logged)
		s := attach(t, p, trace.Log(slog.New(said)))
		for _, c := range []struct {
			spec   string
			wants  []trace.Want
			places int
			hits   uint64
		}{
			{"square", nil, 5, 5},
			{"kinds:square", []trace.Want{trace.Inlined()}, 5, 5},
			{"twice", nil, 1, 1},
			{"twice", []trace.Want{trace.Inlined()}, 2, 2},
			{"twice%return", []trace.Want{trace.Inlined()}, 1, 1},
			{"twic*", []trace.Want{trace.Inlined()}, 1, 1},
		} {
			pr := probe(t, s, c.spec, append(c.wants, trace.Count())...)
			p.Do("go", "done")
			st := pr.Stats()
			if len(st.Places) != c.places || st.Hits != c.hits {
				t.Errorf("%s, %s: %d places, %d hits, want %d and %d", cc, c.spec, len(st.Places), st.Hits, c.places, c.hits)
			}
			if skips := st.Skipped.String(); (skips != "") != strings.HasSuffix(c.spec, trace.ReturnSuffix) {
				t.Errorf("%s, %s: skipped %q", cc, c.spec, skips)
			}
			if err := pr.Close(); err != nil {
				t.Error(err)
			}
		}
		if strings.Contains(said.String(), "not all of the debug information") {
			t.Errorf("%s: %s", cc, said)
		}
		if _, err := s.Probe("square%return"); !errors.Is(err, symbols.ErrUnknownSymbol) {
			t.Errorf("%s: square%%return: %v", cc, err)
		}
		probe(t, s, "twice", trace.Count()) // as long as it is there it may be told
		testprog.Await(t, "a warning of the call that is not seen", func() bool {
			return strings.Contains(said.String(), "twice: the compiler has inlined 1 call of it, which the probe does not see")
		})
		ends(t, p, s)
	}
}

// sameBeginning has a function that begins where the one begins that it is inlined into, whose parameters are others.
const sameBeginning = `#include <stdio.h>
static volatile int sink;
static inline __attribute__((always_inline)) int inner(int b, char *a) { sink = b; return b + a[0]; }
__attribute__((noinline)) int outer(char *word, int number) { return inner(number, word); }
int main(void)
{
	char line[64];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		printf("done %d\n", outer("word", 7));
		fflush(stdout);
	}
	return 0;
}
`

// TestAnInlinedCallHasItsOwnParameters, not those of the function around it.
func TestAnInlinedCallHasItsOwnParameters(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		bin := compiled(t, cc, "same", sameBeginning, "-O2", "-fcf-protection=none")
		p := testprog.Start(t, bin)
		s := attach(t, p, trace.Log(slog.New(new(logged))))
		pr := probe(t, s, "inner", trace.Args(), trace.Fetch("di=%di"))
		p.Do("go", "done")
		if err := pr.Close(); err != nil {
			t.Error(err)
		}
		seen := 0
		for h := range pr.Hits() {
			if seen++; !strings.HasPrefix(h.String(), `inner(b=7, a="word", di=0x`) {
				t.Errorf("%s: %v", cc, h)
			}
		}
		if seen != 1 {
			t.Errorf("%s: %d hits, want 1", cc, seen)
		}
		for _, wrong := range []trace.Want{trace.Fetch("n=$arg1"), trace.Fetch("n=number"), trace.Fetch("n=b"), trace.If("number > 3")} {
			if pr, err := s.Probe("inner", wrong); err == nil {
				t.Errorf("%s: a probe with parameters of nobody's: %v", cc, pr.Stats())
			}
		}
		ends(t, p, s)
	}
}

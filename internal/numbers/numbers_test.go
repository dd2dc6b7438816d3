package numbers

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/symbols"
)

// functions are how many a program has.
const functions = 40

// maker is a compiler, its flags at each level, and the generator of its programs.
type maker struct {
	name   string
	levels [][]string
	// program writes a program of n functions.
	program func(r *rand.Rand, n int) (source string, funcs []function)
	suffix  string
}

func inC(r *rand.Rand, n int) (string, []function)   { return (&gen{Rand: r}).program(n) }
func inCXX(r *rand.Rand, n int) (string, []function) { return (&gen{Rand: r, cxx: true}).program(n) }
func inGo(r *rand.Rand, n int) (string, []function)  { return (&genGo{gen{Rand: r}}).program(n) }
func inRust(r *rand.Rand, n int) (string, []function) {
	return (&genRust{gen{Rand: r}}).program(n)
}

// cLevels are what gcc and clang have.
var cLevels = [][]string{{"-g", "-w", "-O0"}, {"-g", "-w", "-O1"}, {"-g", "-w", "-O2"}, {"-g", "-w", "-O3"}}

var makers = []maker{
	{"gcc", cLevels, inC, ".c"}, {"g++", cLevels, inCXX, ".cc"}, {"clang", cLevels, inC, ".c"}, {"clang++", cLevels, inCXX, ".cc"},
	{"go", [][]string{{"-gcflags=-N -l"}, {}}, inGo, ".go"},
	{"rustc", [][]string{{"-g", "-Copt-level=0"}, {"-g", "-Copt-level=1"}, {"-g", "-Copt-level=2"}, {"-g", "-Copt-level=3"}}, inRust, ".rs"},
}

// tally counts what was compared.
type tally struct{ right, unknown, wrong int }

// Every value that is shown is the one that the program has, whatever the compiler made of the function.
func TestValuesAreRightOrUnknown(t *testing.T) {
	seed := testprog.Seed(t, 10857198958338542215)
	programs := testsize.Rounds(len(makers), 6*len(makers), 100*len(makers))
	var all tally
	for i := range programs {
		m, round := makers[i%len(makers)], i/len(makers)
		flags := m.levels[round%len(m.levels)]
		source, funcs := m.program(rand.New(rand.NewPCG(seed, uint64(i))), functions)
		bin := m.compile(t, flags, source)
		x := &checker{T: t, tally: &all, inTarget: round%2 == 1, restarts: m.name == "go", what: fmt.Sprintf("GOKPROBE_SEED=%d program %d, %s %v", seed, i, m.name, flags)}
		x.run(bin, funcs)
	}
	t.Logf("%d right, %d unknown, %d wrong", all.right, all.unknown, all.wrong)
	if all.right == 0 || all.unknown > all.right {
		t.Errorf("%d values are right, and %d are not known", all.right, all.unknown)
	}
}

func (m maker) compile(t *testing.T, flags []string, source string) string {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "random"+m.suffix), filepath.Join(dir, "random")
	if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(flags, []string{"-o", bin, src})
	if m.name == "go" {
		args = append([]string{"build"}, args...)
	}
	out, err := exec.Command(m.name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", m.name, args, err, out)
	}
	return bin
}

// checker compares what is known of one program's calls with what its generator knows.
type checker struct {
	*testing.T
	*tally
	what string
	s    *kprobes.Session
	// inTarget tells that the target itself records fetch arguments, of the calls that meet a condition.
	inTarget bool
	// restarts tells that a function begins again when its stack has grown: Go's.
	restarts bool
	records  []func() // what is to be looked at behind the session's end
}

func (x *checker) run(bin string, funcs []function) {
	p := testprog.Start(x.T, bin)
	var err error
	if x.s, err = kprobes.Attach(x.Context(), p.PID(), kprobes.Options{}); err != nil {
		x.Fatal(err)
	}
	calls := make([]int, len(funcs))
	probed := 0
	for i := range funcs {
		if x.probe(&funcs[i], &calls[i]) {
			probed++
		}
	}
	x.s.WaitForOptimizer(x.Context())
	p.Send("go")
	p.Expect("done")
	if err := x.s.Close(); err != nil {
		x.Error(err)
	}
	for _, look := range x.records {
		look()
	}
	for i, n := range calls {
		if n > 1 && !x.restarts {
			x.Errorf("%s: %s was called %d times", x.what, funcs[i].name, n)
		}
	}
	if probed < len(funcs)/5 { // gcc makes copies of the others
		x.Errorf("%s: only %d functions could be probed", x.what, probed)
	}
	p.Quit()
}

// probe compares at the one call of f. It is false if there is no such function: a copy took its place.
func (x *checker) probe(f *function, calls *int) bool {
	table := x.s.Symbols()
	found, err := table.Resolve(x.Context(), f.name)
	if err != nil || len(found) != 1 {
		x.unknown += len(f.params)
		return false
	}
	at := found[0].Addr
	params, err := table.Params(at)
	if err != nil {
		x.unknown += len(f.params)
		return false
	}
	doors := x.doors(f, at, false)
	if x.inTarget && doors.passes != nil && doors.passes.Filter != nil {
		x.record(f, doors)
		return true
	}
	kp := &kprobes.Kprobe{SymbolName: f.name, PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		*calls++
		for _, p := range f.params {
			i := slices.IndexFunc(params, func(q symbols.Param) bool { return q.Name == p.name })
			if i < 0 {
				x.unknown++
				continue
			}
			x.typed(f, p, params[i], regs)
		}
		doors.check(regs)
		return 0
	}}
	if err := x.s.RegisterKprobe(kp); err != nil {
		x.Errorf("%s: %s: %v", x.what, f.name, err)
		return false
	}
	x.probeReturn(f, kp.Addr)
	return true
}

// record has the target record the one call of f, which meets the condition, and compares what it has recorded.
func (x *checker) record(f *function, d *doors) {
	cond, _ := d.passes.Filter.Cond(d.passes.Layout)
	made, err := d.passes.Layout.Program(f.name, cond, program.Map{Kind: program.Ring, Size: 1 << 14})
	if err != nil {
		x.Error(err)
		return
	}
	kp := &kprobes.Kprobe{SymbolName: f.name, Program: made, RecordHandler: func(_ *kprobes.Kprobe, h *kprobes.HitRecord) {
		d.recorded = true
		values := d.passes.Layout.Decode(h.Payload, fetch.Host{})
		if !d.passes.Keeps(values, "", 0) {
			x.wrong++
			x.Errorf("%s: %s: in the target it does not meet %s", x.what, f.name, d.passes.Filter)
		}
		for i, v := range values[:len(d.wants)] {
			x.same(f, "in the target -arg "+d.paths[i], d.wants[i], shown(d.passes.Args[i].Type, v))
		}
	}}
	if err := x.s.RegisterKprobe(kp); err != nil {
		x.Errorf("%s: %s: %v", x.what, f.name, err)
		return
	}
	x.records = append(x.records, func() {
		if !d.recorded && kp.Hits() > 0 {
			x.wrong++
			x.Errorf("%s: %s: the target does not find that it meets %s", x.what, f.name, d.passes.Filter)
		}
	})
}

// probeReturn compares what f returns.
func (x *checker) probeReturn(f *function, at arch.Addr) {
	results, err := x.s.Symbols().Results(at)
	if err != nil {
		return
	}
	doors := x.doors(f, at, true)
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{Addr: at}, Handler: func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		switch {
		case f.result == nil:
		case len(results) == 0:
			x.unknown++
		default:
			x.typed(f, *f.result, results[0], regs)
			if number, ok := f.result.leaves[""]; ok && results[0].Whole() && !isText(number) {
				x.same(f, "the number ret", number, results[0].Integer(regs.ReturnValue()))
			}
		}
		doors.check(regs)
		return 0
	}}
	if err := x.s.RegisterKretprobe(rp); err != nil {
		x.Errorf("%s: %s's return: %v", x.what, f.name, err)
	}
}

// typed compares what -args, or the result, shows.
func (x *checker) typed(f *function, p param, q symbols.Param, regs *kprobes.Regs) {
	v := q.Value(regs, regs)
	switch {
	case p.want == nil: // it is not known what it is
	case v.Err != nil:
		x.unknown++
	default:
		x.same(f, "-args "+p.name+" ("+q.Type+")", p.want, v.JSON)
	}
}

// same compares values by their JSON, numbers by what they are and not by their types.
func (x *checker) same(f *function, what string, want, got any) {
	a, b := asJSON(want), asJSON(got)
	if n, ok := got.(int64); ok && a != b {
		b = asJSON(uint64(n)) // the number ret is signed whatever it is
	}
	if a == b || strings.Contains(b, "…") { // it is too deep to be shown
		x.right++
		return
	}
	x.wrong++
	x.Errorf("%s: %s: %s is %s, want %s", x.what, f.name, what, b, a)
}

func isText(v any) bool { _, ok := v.(string); return ok }

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

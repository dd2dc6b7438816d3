package realprog

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// whole is a program whose functions are probed at every instruction, all of them at
// once, while it works.
type whole struct {
	prog *testprog.Prog
	code *disassembly // of the program's file
	// varies tells that the course of the work is not the same every time.
	varies bool
	// longjmps tells that what the functions call may not return to them.
	longjmps bool
}

// buildWork compiles a program of testdata with an archive of the Debian package pkg:
// what is linked statically keeps the names of its local functions.
func buildWork(t testing.TB, name, archive, pkg string, flags ...string) string {
	t.Helper()
	if path := strings.TrimSpace(output(t, "", "gcc", "-print-file-name="+archive)); !filepath.IsAbs(path) {
		t.Skipf("%s is not installed: apt-get install %s", archive, pkg)
	}
	bin := filepath.Join(t.TempDir(), name)
	args := append([]string{"gcc", "-O1", "-g", "-pthread", "-Wall", "-I", "../testprog/testdata", "-o", bin}, flags...)
	output(t, "", append(args, filepath.Join("testdata", name+".c"), "-l:"+archive, "-lm", "-ldl")...)
	return bin
}

// startWork runs a program of testdata with more in its environment.
func startWork(t testing.TB, code *disassembly, bin string, env ...string) *whole {
	t.Helper()
	return &whole{prog: testprog.StartWith(t, testprog.Options{Env: env}, bin), code: code}
}

// quit ends the program, which has checked its own results as well.
func (w *whole) quit(t testing.TB) {
	t.Helper()
	if verdict := w.prog.Quit(); verdict != "right" {
		t.Errorf("the program says %q", verdict)
	}
}

// test has the program do a work unprobed, with every instruction of the functions
// boosted, then stepped, and unprobed again. It returns how many instructions of each
// function ran.
func (w *whole) test(t *testing.T, work string, functions ...string) hits {
	t.Helper()
	do := func() string { return w.prog.Do(work, "done "+work+" ") }
	want := do()
	before := testprog.TakeSnapshot(t, w.prog.PID())
	probed := func(what string, m mode, only func(arch.Addr) bool) (map[arch.Addr]uint64, hits) {
		s := attach(t, w.prog.PID(), kprobes.Options{NoOptimize: true})
		kps := w.everyInsn(t, s, m, functions, only)
		sameText(t, what, want, do())
		w.awaitRest(t)
		if only == nil {
			w.checkCalls(t, m, want, functions[0], kps)
		}
		counts, ran := w.counts(t, s, what, kps)
		w.checkFlow(t, counts)
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		before.Compare(t, w.prog.PID())
		w.prog.CheckClean()
		return counts, ran
	}
	counts, ran := probed("boosted", boosted, nil)
	if step, _ := probed("stepped", stepped, nil); !w.varies {
		w.sameCounts(t, "stepped", counts, step)
		// Now the processor branches: does it come to the same places?
		inPlace, _ := probed("with branches in place", boosted, w.code.headsBlock)
		w.sameCounts(t, "with branches in place", counts, inPlace)
	}
	sameText(t, "after all probes", want, do())
	return ran
}

// awaitRest waits until the program reads its next command. An interpreter has more to do
// behind the line that says it is done, in the very function that is probed.
func (w *whole) awaitRest(t *testing.T) {
	t.Helper()
	testprog.Await(t, "a program that waits for a command", func() bool {
		b, err := procfs.ReadBlocked(w.prog.PID(), w.prog.PID())
		return err == nil && b.Number == unix.SYS_READ
	})
}

// sameCounts compares the hits of a second run with those of a first that probed more.
func (w *whole) sameCounts(t *testing.T, when string, counts, second map[arch.Addr]uint64) {
	t.Helper()
	for at, n := range second {
		if n != counts[at] {
			t.Errorf("%s %s: %d hits at first, %d %s", at, w.code.text[at], counts[at], n, when)
		}
	}
}

// everyInsn registers a probe at each instruction of functions, where objdump sees
// it, or at those that only accepts. None may be refused.
func (w *whole) everyInsn(t *testing.T, s *kprobes.Session, m mode, functions []string, only func(arch.Addr) bool) []*kprobes.Kprobe {
	t.Helper()
	var kps []*kprobes.Kprobe
	probed := map[arch.Addr]bool{}
	for _, function := range functions {
		for _, loc := range bodies(t, s, function) {
			bias := arch.Addr(loc.Symbol.Module.Bias)
			for _, at := range w.code.within(loc.Every.Start-bias, loc.Every.End-bias) {
				if probed[at] || at == loc.Every.Start-bias && w.code.isLanding(at) || only != nil && !only(at) {
					continue // a probe on endbr64 is one on the next
				}
				probed[at] = true
				kp := m.probe("")
				kp.Addr = at + bias
				kps = append(kps, kp)
			}
		}
	}
	if err := s.RegisterKprobes(t.Context(), kps); err == nil {
		return kps
	}
	return w.oneByOne(t, s, m, kps)
}

// oneByOne registers probes of which one is refused: which, and are there more?
func (w *whole) oneByOne(t *testing.T, s *kprobes.Session, m mode, kps []*kprobes.Kprobe) []*kprobes.Kprobe {
	t.Helper()
	refused := map[string]int{}
	var placed []*kprobes.Kprobe
	for _, kp := range kps {
		kp.Flags = 0 // what was registered and is not any more has been left disabled
		err := s.RegisterKprobe(kp)
		if err == nil {
			placed = append(placed, kp)
			continue
		}
		loc, _ := s.Symbols().Lookup(kp.Addr)
		insn := w.code.text[kp.Addr-arch.Addr(loc.Symbol.Module.Bias)]
		refused[insn]++
		if op, _ := operation(insn); op == "ud2" && errors.Is(err, kprobes.ErrException) {
			continue
		}
		t.Errorf("%s: %s: %v", loc, insn, err)
	}
	t.Logf("%s: refused: %v", m, refused)
	return placed
}

// bodies are the functions of one name: local ones of several files may share it.
func bodies(t testing.TB, s *kprobes.Session, function string) []symbols.Location {
	t.Helper()
	locs, err := s.Symbols().Resolve(t.Context(), function+"+*")
	if ambiguous := new(symbols.AmbiguousError); errors.As(err, &ambiguous) {
		locs = nil
		for _, sym := range s.Symbols().Symbols(function) {
			body, known := s.Symbols().Function(sym.Addr)
			if !known {
				t.Fatalf("%s: bounds unknown", sym.Name)
			}
			locs = append(locs, symbols.Location{Symbol: sym, Addr: sym.Addr, Every: body})
		}
		err = nil
	}
	if err != nil || len(locs) == 0 {
		t.Fatalf("%s: %v, %v", function, locs, err)
	}
	return locs
}

// counts are the hits by the address in the file, and how many instructions of each
// function were hit.
func (w *whole) counts(t *testing.T, s *kprobes.Session, what string, kps []*kprobes.Kprobe) (map[arch.Addr]uint64, hits) {
	t.Helper()
	counts, ran := map[arch.Addr]uint64{}, hits{}
	hit, sum := 0, uint64(0)
	mechanisms := map[string]int{}
	for _, kp := range kps {
		loc, _ := s.Symbols().Lookup(kp.Addr)
		n := kp.Hits()
		counts[kp.Addr-arch.Addr(loc.Symbol.Module.Bias)] = n
		mechanisms[s.Status(kp).Mechanism.String()]++
		if sum += n; n > 0 {
			hit++
			ran[loc.Symbol.Name]++
		}
		if missed := kp.NMissed(); missed > 0 {
			t.Errorf("%s: %d hits missed", loc, missed)
		}
	}
	t.Logf("%s: %d probes (%v), %d of them hit, %d hits", what, len(kps), mechanisms, hit, sum)
	if hit == 0 {
		t.Error("no instruction was hit")
	}
	return counts, ran
}

// checkCalls compares the hits of the first function's first instruction with what the
// program says of its calls, where it does; a few more are for its saying so.
func (w *whole) checkCalls(t *testing.T, m mode, said, function string, kps []*kprobes.Kprobe) {
	t.Helper()
	_, number, _ := strings.Cut(said, " calls ")
	calls, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		t.Fatalf("the program says %q: %v", said, err)
	}
	if n := kps[0].Hits(); calls > 0 && (n < calls || n > calls+20) {
		t.Errorf("%s: %s was called %d times, its first instruction hit %d times", m, function, calls, n)
	}
}

// checkFlow compares each instruction's hits with those of the one before it: what
// leaves the one comes to the other.
func (w *whole) checkFlow(t *testing.T, counts map[arch.Addr]uint64) {
	t.Helper()
	for at, n := range counts {
		next, falls := w.code.falls(at)
		m, probed := counts[next]
		if !falls || !probed || w.longjmps && strings.Contains(w.code.text[at], "call ") {
			continue
		}
		if m < n || m > n && !w.code.entered(next) {
			t.Errorf("%s %s was hit %d times, but %s %s after it %d times", at, w.code.text[at], n, next, w.code.text[next], m)
		}
	}
}

package symbols

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// splitBuild is how a program is built whose debug information is split.
type splitBuild struct {
	compiler string
	flags    []string
	pack     string // what makes a package of it; empty if it stays in .dwo files
}

func (b splitBuild) String() string {
	return strings.Join(append([]string{b.compiler, b.pack}, b.flags...), " ")
}

// splitSources make one program: the main of the first one is its.
var splitSources = []string{"inlined.c", "computed.c", "params.c", "clones.cc", "inlinedaway.cc", "members.cc"}

// build compiles each source by itself, with and without -gsplit-dwarf, and links them.
func (b splitBuild) build(t *testing.T, dir string) (whole, split string) {
	t.Helper()
	for _, kind := range []string{"whole", "split"} {
		var objects, dwos []string
		prog := filepath.Join(dir, kind)
		for i, src := range splitSources {
			object := fmt.Sprintf("%s-%d.o", prog, i)
			b.compile(t, i, src, object, kind == "split")
			objects, dwos = append(objects, object), append(dwos, strings.TrimSuffix(object, ".o")+".dwo")
		}
		run(t, b.cxx(), append(objects, "-Wl,-z,muldefs", "-o", prog)...)
		if kind == "split" && b.pack != "" {
			run(t, b.pack, append(dwos, "-o", prog+".dwp")...)
			for _, dwo := range dwos {
				must(t, os.Remove(dwo))
			}
		}
	}
	return filepath.Join(dir, "whole"), filepath.Join(dir, "split")
}

// compile makes an object of the source with number i.
func (b splitBuild) compile(t *testing.T, i int, src, object string, isSplit bool) {
	t.Helper()
	src, err := filepath.Abs(filepath.Join("testdata", src))
	must(t, err)
	flags := append(b.flags[:len(b.flags):len(b.flags)], "-w", "-c", src, "-o", object)
	compiler := b.compiler
	if filepath.Ext(src) == ".cc" {
		compiler = b.cxx()
		flags = append(flags, "-std=c++17")
	}
	if i > 0 {
		flags = append(flags, fmt.Sprintf("-Dmain=main%d", i))
	}
	if isSplit {
		flags = append(flags, "-gsplit-dwarf")
	}
	run(t, compiler, flags...)
}

func (b splitBuild) cxx() string {
	return map[string]string{"gcc": "g++", "clang": "clang++"}[b.compiler]
}

// TestSplitDebugInformationSaysTheSame as that of the same program which was built without -gsplit-dwarf.
func TestSplitDebugInformationSaysTheSame(t *testing.T) {
	builds := []splitBuild{
		{"gcc", []string{"-gdwarf-5", "-O2", "-fdebug-types-section"}, ""},
		{"gcc", []string{"-gdwarf-4", "-O2", "-fdebug-types-section"}, "dwp"},
		{"clang", []string{"-gdwarf-5", "-O2"}, ""},
		{"clang", []string{"-gdwarf-4", "-O2", "-fdebug-types-section"}, ""},
		{"gcc", []string{"-gdwarf-4", "-O0"}, "dwp"},
		{"gcc", []string{"-gdwarf-4", "-O2", "-gz"}, ""},
		{"gcc", []string{"-gdwarf-4", "-O2"}, "llvm-dwp"},
		{"gcc", []string{"-gdwarf-5", "-O0"}, ""},
		{"clang", []string{"-gdwarf-5", "-O2", "-fdebug-types-section"}, "llvm-dwp"},
		{"clang", []string{"-gdwarf-5", "-O0", "-fsplit-dwarf-inlining"}, "llvm-dwp"},
		{"clang", []string{"-gdwarf-4", "-O2", "-fdebug-types-section"}, "llvm-dwp"},
		{"clang", []string{"-gdwarf-4", "-O0"}, "dwp"},
		{"clang", []string{"-gdwarf-5", "-O2", "-fsplit-dwarf-inlining"}, ""},
	}
	if testsize.Rounds(0, 0, 1) > 0 {
		splitSources = append(splitSources, "params.cc") // has many types of the library, and takes long
	}
	for _, b := range builds[:testsize.Rounds(1, 3, len(builds))] {
		t.Run(b.String(), func(t *testing.T) {
			whole, split := b.build(t, t.TempDir())
			want, got := tableAnswers(t, whole), tableAnswers(t, split)
			if len(want) < 1000 {
				t.Errorf("only %d answers", len(want))
			}
			differences(t, b, want, got)
		})
	}
}

// differences reports where answers are not the same.
func differences(t *testing.T, b splitBuild, want, got []string) {
	t.Helper()
	shown := 0
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g && !(b.isCut() && isLess(g, w)) {
			if shown++; shown < 4 {
				t.Errorf("split:\n%s\nwhole:\n%s", g, w)
			}
		}
	}
	if shown > 0 {
		t.Errorf("%d of %d answers differ", shown, len(want))
	}
}

// isCut tells of GCC with split DWARF 4 that it writes places of values for fewer instructions than without, and no conversions, which are to another type
// of the same length.
func (b splitBuild) isCut() bool {
	if b.compiler == "clang" { // no conversions (LLVM, EnableOpConvert)
		return slices.Contains(b.flags, "-O2")
	}
	return b.compiler == "gcc" && slices.Contains(b.flags, "-gdwarf-4") && slices.Contains(b.flags, "-O2")
}

// isLess tells that two answers differ only in what got does not know, or in how a value is computed.
func isLess(got, want string) bool {
	g, w := strings.Split(got, "; "), strings.Split(want, "; ")
	for i := range min(len(g), len(w)) {
		if before, _, computed := strings.Cut(g[i], " computed "); computed {
			name, isUnknown := strings.CutSuffix(w[i], unknownPlace)
			if strings.HasPrefix(w[i], before+" computed ") || isUnknown && strings.HasPrefix(g[i], name) {
				continue
			}
		}
		if known, unknown := strings.CutSuffix(g[i], unknownPlace); g[i] != w[i] && !(unknown && strings.HasPrefix(w[i], known)) {
			return false
		}
	}
	return len(g) == len(w)
}

const unknownPlace = " is unknown"

// tableAnswers are what a table says of a program's own functions, at every byte.
func tableAnswers(t *testing.T, prog string) (out []string) {
	t.Helper()
	tab := file(t, prog)
	m := tab.Modules()[0]
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	lines := map[string]bool{}
	for _, s := range tab.Symbols("") {
		if !s.Func || s.Size == 0 {
			continue
		}
		n, isKnown := tab.Inlined(s.Addr)
		results, err := tab.Results(s.Addr)
		say("%s: inlined %d %t, results; %s; %v", s.Name, n, isKnown, described(results), err != nil)
		params, err := tab.Params(s.Addr)
		say("%s: parameters; %s; %v", s.Name, described(params), err != nil)
		for a := s.Addr; a < s.Addr.Add(int64(s.Size)); a++ {
			file, line, ok := tab.Line(a)
			v, err := tab.Variables(a)
			say("%s+%d: %s:%d %t; %s; and; %s; %v", s.Name, a-s.Addr, filepath.Base(file), line, ok, described(v.Params), described(v.Locals), err != nil)
			lines[fmt.Sprintf("%s:%d", filepath.Base(file), line)] = true
		}
	}
	for line := range lines {
		locs, _ := tab.Resolve(t.Context(), line)
		var at []arch.Addr
		for _, l := range locs {
			at = append(at, l.Addr)
		}
		out = append(out, fmt.Sprintf("~ %s: %v", line, at))
	}
	for _, name := range []string{"twice", "split", "only", "Box::get", "sq", "half"} {
		calls, all, _ := tab.InlinedCalls(t.Context(), name)
		for _, c := range calls {
			say("call of %s: %v %t %s", name, c.Addr, c.Ambiguous, c.Symbol.Name)
		}
		say("calls of %s: %t", name, all)
	}
	known := 0
	for i := range m.symbols().entries {
		e := &m.symbols().entries[i]
		if name := demangleShort(m.symbols().linkage(e)); !e.isCode() && len(tab.Symbols("main")) > 0 {
			p, err := tab.Global(tab.Symbols("main")[0].Addr, name)
			if err == nil {
				known++
				say("variable %s; %s", name, described([]Param{p}))
			}
		}
	}
	if known == 0 {
		t.Errorf("%s: no variable outside of functions is known", prog)
	}
	for _, err := range m.Refused() {
		t.Errorf("%s: %v", prog, err)
	}
	return sortedAnswers(out)
}

// sortedAnswers puts those about lines in order, which a map has mixed.
func sortedAnswers(list []string) []string {
	slices.SortStableFunc(list, func(a, b string) int {
		if a[0] != '~' || b[0] != '~' {
			return 0
		}
		return strings.Compare(a, b)
	})
	return list
}

// described are parameters or variables with their types and places.
func described(list []Param) string {
	var out []string
	for _, p := range list {
		l := p.place
		text := fmt.Sprintf("%s %s", p.Name, describedType(p.typ, 0))
		if l.isUnknown {
			out = append(out, text+unknownPlace)
			continue
		}
		text += fmt.Sprintf(" = %t %d %v", l.isIndirect, l.behind, l.more)
		for _, x := range l.parts {
			made := x.made
			x.made = nil
			text += fmt.Sprintf(" %+v", x)
			if made != nil {
				text += fmt.Sprintf(" computed %+v %+v", made.steps, made.result)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func describedType(t *dtype, depth int) string {
	if t == nil || depth > 3 {
		return ""
	}
	text := fmt.Sprintf("%s(%d %d %d %t)", t.name, t.kind, t.size, t.count, t.isByRef)
	for _, f := range t.field {
		text += fmt.Sprintf("{%s %d %d %d %s}", f.name, f.off, f.bit, f.wide, describedType(f.typ, depth+1))
	}
	return text + fmt.Sprint(t.enum) + describedType(t.elem, depth+1)
}

// small is a program of one file with split debug information, and its .dwo file.
func small(t *testing.T, flags ...string) (prog, dwo string) {
	t.Helper()
	dir := t.TempDir()
	b := splitBuild{"gcc", append(flags, "-O1"), ""}
	object := filepath.Join(dir, "prog.o")
	b.compile(t, 0, "inlined.c", object, true)
	prog = filepath.Join(dir, "prog")
	run(t, "gcc", object, "-o", prog)
	return prog, filepath.Join(dir, "prog.dwo")
}

// TestWithoutItsFileASplitUnitHasLines, one place for each, and what is missing is told, once.
func TestWithoutItsFileASplitUnitHasLines(t *testing.T) {
	for _, version := range []string{"-gdwarf-5", "-gdwarf-4"} {
		for what, spoil := range map[string]func(dwo string){
			"no such file": func(dwo string) { must(t, os.Remove(dwo)) },
			"built again": func(dwo string) {
				_, other := small(t, version, "-Dtwice=thrice")
				b, err := os.ReadFile(other)
				must(t, err)
				must(t, os.WriteFile(dwo, b, 0o600))
			},
		} {
			prog, dwo := small(t, version)
			spoil(dwo)
			tab := file(t, prog)
			locs, err := tab.Resolve(t.Context(), "inlined.c:9")
			if err != nil || len(locs) != 1 {
				t.Errorf("%s: %v, %v", what, locs, err)
			}
			_, _ = tab.Resolve(t.Context(), "inlined.c:13")
			refused := tab.Modules()[0].Refused()
			if len(refused) != 1 || !strings.Contains(refused[0].Error(), what) || !strings.Contains(refused[0].Error(), "1 of 1 units is missing, the first in "+dwo) {
				t.Errorf("%s %s: told: %v", version, what, refused)
			}
			if p, err := tab.Params(locs[0].Symbol.Addr); err == nil {
				t.Errorf("%s: there are parameters: %v", what, p)
			}
		}
	}
}

// TestADamagedSplitFileDoesNoHarm: any of its bytes may be otherwise.
func TestADamagedSplitFileDoesNoHarm(t *testing.T) {
	used := budget.Process().Used()
	for _, version := range []string{"-gdwarf-5", "-gdwarf-4"} {
		prog, dwo := small(t, version, "-fdebug-types-section")
		pack := prog + ".dwp"
		if version == "-gdwarf-4" {
			run(t, "dwp", dwo, "-o", pack)
		} else {
			must(t, os.Rename(dwo, pack))
		}
		whole, err := os.ReadFile(pack)
		must(t, err)
		r := rand.New(rand.NewPCG(testprog.Seed(t, 20261129), 1))
		for range testsize.Rounds(30, 300, 10000) {
			b := bytes.Clone(whole)
			for range 1 + r.IntN(8) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
			must(t, os.WriteFile(pack, b[:len(b)-r.IntN(2)*r.IntN(len(b))], 0o600))
			tab, err := OpenFile(prog)
			must(t, err)
			for _, s := range tab.Symbols("main") {
				_, _ = tab.Variables(s.Addr.Add(4))
				_, _ = tab.Params(s.Addr)
				_, _ = tab.Inlined(s.Addr)
				_, _, _ = tab.InlinedCalls(t.Context(), "twice")
			}
			must(t, tab.Close())
		}
	}
	if now := budget.Process().Used(); now != used {
		t.Errorf("%d bytes are taken, %d were", now, used)
	}
}

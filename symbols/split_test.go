package symbols

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
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

// splitSources are programs in one: main, and functions of other files.
var splitSources = []string{"inlined.c", "computed.c", "params.c", "params.cc", "clones.cc", "inlinedaway.cc", "members.cc"}

// buildSplit compiles each source by itself, with and without -gsplit-dwarf, and links it: pairs of programs.
func (b splitBuild) build(t *testing.T, dir string, sources ...string) (whole, split []string) {
	t.Helper()
	for i, src := range sources {
		compiler := b.compiler
		if filepath.Ext(src) == ".cc" {
			compiler = map[string]string{"gcc": "g++", "clang": "clang++"}[compiler]
		}
		src, err := filepath.Abs(filepath.Join("testdata", src))
		must(t, err)
		for _, kind := range []string{"whole", "split"} {
			object, prog := filepath.Join(dir, fmt.Sprintf("%d%s.o", i, kind)), filepath.Join(dir, fmt.Sprintf("%d%s", i, kind))
			flags := append(b.flags[:len(b.flags):len(b.flags)], "-w", "-c", src, "-o", object)
			if kind == "split" {
				flags = append(flags, "-gsplit-dwarf")
			}
			run(t, compiler, flags...)
			run(t, compiler, object, "-o", prog)
			if kind == "whole" {
				whole = append(whole, prog)
				continue
			}
			if b.pack != "" {
				dwo := strings.TrimSuffix(object, ".o") + ".dwo"
				run(t, b.pack, dwo, "-o", prog+".dwp")
				must(t, os.Remove(dwo))
			}
			split = append(split, prog)
		}
	}
	return whole, split
}

func splitBuilds() (all []splitBuild) {
	for _, compiler := range []string{"gcc", "clang"} {
		for _, flags := range [][]string{{"-gdwarf-5", "-O2"}, {"-gdwarf-4", "-O2"}, {"-gdwarf-5", "-O0"}, {"-gdwarf-4", "-O0"}} {
			all = append(all, splitBuild{compiler: compiler, flags: flags})
		}
		for _, version := range []string{"-gdwarf-5", "-gdwarf-4"} {
			all = append(all, splitBuild{compiler, []string{version, "-O2", "-fdebug-types-section"}, ""})
		}
	}
	return all
}

// TestSplitDebugInformationSaysTheSame as that of the same program which was built without -gsplit-dwarf.
func TestSplitDebugInformationSaysTheSame(t *testing.T) {
	for _, b := range splitBuilds() {
		t.Run(b.String(), func(t *testing.T) {
			if _, err := exec.LookPath(b.pack); b.pack != "" && err != nil {
				t.Skip(err)
			}
			whole, split := b.build(t, t.TempDir(), splitSources...)
			for i := range whole {
				want, got := tableAnswers(t, whole[i]), tableAnswers(t, split[i])
				if len(want) < 50 {
					t.Errorf("%s: only %d answers", splitSources[i], len(want))
				}
				differences(t, splitSources[i], want, got)
			}
		})
	}
}

// differences reports where answers are not the same.
func differences(t *testing.T, what string, want, got []string) {
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
		if w != g {
			if shown++; shown < 4 {
				t.Errorf("%s: split:\n%s\nwhole:\n%s", what, g, w)
			}
		}
	}
	if shown > 0 {
		t.Errorf("%s: %d of %d answers differ", what, shown, len(want))
	}
}

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
		n, known := tab.Inlined(s.Addr)
		results, err := tab.Results(s.Addr)
		say("%s: inlined %d %t, results %s %v", s.Name, n, known, described(results), err != nil)
		params, err := tab.Params(s.Addr)
		say("%s: parameters %s %v", s.Name, described(params), err != nil)
		for a := s.Addr; a < s.Addr.Add(int64(s.Size)); a++ {
			file, line, ok := tab.Line(a)
			v, err := tab.Variables(a)
			say("%s+%d: %s:%d %t %s; %s %v", s.Name, a-s.Addr, filepath.Base(file), line, ok, described(v.Params), described(v.Locals), err != nil)
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
		text := fmt.Sprintf("%s %s = %t %d %v %v", p.Name, describedType(p.typ, 0), l.isIndirect, l.behind, l.more, l.isUnknown)
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
	return strings.Join(out, ", ")
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

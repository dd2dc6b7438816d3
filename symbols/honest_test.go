package symbols

import (
	"debug/gosym"
	"os"
	"path/filepath"
	"testing"
)

// The limits that forged files meet are far from what real ones have: nothing of the system's largest libraries, of a C++ and of a Go program is refused.
func TestNothingOfRealFilesIsRefused(t *testing.T) {
	files, err := filepath.Glob("/lib/x86_64-linux-gnu/lib*.so.*")
	must(t, err)
	if len(files) > 60 {
		files = files[:60]
	}
	exe, err := os.Executable()
	must(t, err)
	again := filepath.Join(t.TempDir(), "again.o") // a file of its own, and so another table of abbreviations
	run(t, "gcc", "-g", "-gdwarf-5", "-O2", "-DAGAIN", "-c", "-o", again, "testdata/least.c")
	files = append(files, exe, build(t, "members.c", "-g", "-O2"), build(t, "names.c", "-g", "-gz=zlib"), build(t, "least.c", "-g", "-gdwarf-5", "-O2", again), build(t, "results.go"))
	rows := 0
	for _, path := range files {
		tab, err := OpenFile(path)
		if err != nil {
			continue // a linker's script
		}
		m := tab.Modules()[0]
		st := m.symbols()
		for i := range min(len(st.entries), 2000) {
			if e := &st.entries[i]; e.kind == kindFunc && e.size > 0 {
				a := m.addr(e.value)
				tab.Line(a)
				tab.Params(a)
				f := m.img.frame(e.value)
				if f == nil {
					continue
				}
				rows++
				if m.img.row(e.value) == nil {
					t.Errorf("%s: the call-frame information at %#x is refused", path, e.value)
				}
			}
		}
		if refused := m.Refused(); len(refused) > 0 {
			t.Error(refused)
		}
		tab.Close()
	}
	if rows < 1000 {
		t.Errorf("%d functions have call-frame information", rows)
	}
}

// The standard library's reader of Go's table is the oracle of ours.
func TestGosymReadsTheSameTable(t *testing.T) {
	for _, l := range goLayouts {
		tab := file(t, build(t, "plain.go", l.flags...))
		m := tab.Modules()[0]
		g := m.img.golang()
		if g == nil {
			t.Fatalf("%s: no table", l.name)
		}
		_, data := m.img.pclntabOnce()
		want, err := gosym.NewTable(nil, gosym.NewLineTable(data, m.img.goText()))
		must(t, err)
		if g.n != len(want.Funcs) {
			t.Errorf("%s: %d functions, want %d", l.name, g.n, len(want.Funcs))
		}
		for i := range want.Funcs {
			w := &want.Funcs[i]
			f, ok := g.function(i)
			if !ok || f.entry != w.Entry || f.end != w.End {
				t.Fatalf("%s: function %d is %+v, want %+v", l.name, i, f, w)
			}
			for pc := w.Entry; pc < w.End; pc += 7 {
				file, line, fn := want.PCToLine(pc)
				gotFile, gotLine, ok := g.pcToLine(pc)
				if ok != (fn != nil && line > 0) || ok && (gotFile != file || gotLine != line) {
					t.Fatalf("%s: %#x is %s:%d %v, want %s:%d", l.name, pc, gotFile, gotLine, ok, file, line)
				}
			}
		}
		for line := range 60 {
			for _, name := range []string{"plain.go"} {

				g.lines(line, func(file string) bool { return matchesPath(file, name) }, func(pc uint64, file string) {
					if gotFile, gotLine, ok := g.pcToLine(pc); !ok || gotLine != line || gotFile != file {
						t.Errorf("%s: %s:%d is at %#x, which is %s:%d", l.name, file, line, pc, gotFile, gotLine)
					}
				})
				for file := range want.Files {
					if !matchesPath(file, name) {
						continue
					}
					if pc, fn, err := want.LineToPC(file, line); err == nil && fn != nil {
						found := false
						g.lines(line, func(f string) bool { return f == file }, func(at uint64, _ string) { found = found || at == pc })
						if !found {
							t.Errorf("%s: %s:%d is not found at %#x", l.name, file, line, pc)
						}
					}
				}
			}
		}
	}
}

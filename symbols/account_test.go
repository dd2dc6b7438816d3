package symbols

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// askAbout asks all that may be asked of a file, about n of its functions.
func askAbout(tab *Table, n int) {
	for _, spec := range []string{"main", "nope", "ma*", "members.c:11", "results.go:13", "main.F[...]"} {
		_, _ = tab.Resolve(context.Background(), spec)
	}
	m := tab.Modules()[0]
	st := m.symbols()
	for i := 0; i < len(st.entries); i += 1 + len(st.entries)/n {
		e := &st.entries[i]
		if !e.isCode() {
			continue
		}
		a := m.addr(e.value)
		tab.Lookup(a)
		tab.Function(a)
		tab.Line(a)
		tab.Inlined(a)
		tab.Unwindable(a)
		tab.GoFunction(a)
		_, _ = tab.Params(a)
		_, _ = tab.Results(a)
		_, _ = tab.Variables(a)
		if r, ok := tab.Function(a); ok {
			tab.Entrances(r)
		}
		m.img.row(e.value)
		m.img.bindings()
	}
}

// quietBudget is what is taken when no forgotten account is left from earlier tests.
func quietBudget() uint64 {
	used := budget.Process().Used()
	for range 8 {
		runtime.GC()
		runtime.Gosched()
		if now := budget.Process().Used(); now < used {
			used = now
		}
	}
	return used
}

func openAll(t *testing.T, files []string) (all []*Table) {
	t.Helper()
	for _, f := range files {
		if tab, err := OpenFile(f); err == nil {
			all = append(all, tab)
		}
	}
	return all
}

// What questions take is given back: asked again they take nothing, and a closed file has nothing.
func TestTheBudgetIsWhereItWasAfterAThousandQuestions(t *testing.T) {
	files := []string{
		build(t, "members.c", "-g", "-O2"), build(t, "names.c", "-g", "-gz=zlib"), build(t, "results.go"), build(t, "plain.go", "-ldflags=-s -w"),
		build(t, "results.cc", "-g", "-O1", "-std=c++17"), "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6",
	}
	before := quietBudget()
	first := openAll(t, files)
	for _, tab := range first {
		askAbout(tab, 10)
	}
	once := budget.Process().Used()
	small := first[:5]
	for i := range 1000 / len(small) {
		for _, tab := range small {
			askAbout(tab, 10)
		}
		if i%50 == 0 {
			for _, tab := range first {
				askAbout(tab, 10)
			}
		}
		if now := budget.Process().Used(); now != once {
			t.Fatalf("%d bytes are taken after %d rounds of the same questions, %d after the first", now, i+1, once)
		}
	}
	// Many at once have the debug information of a file together.
	var many []*Table
	for range 20 {
		many = append(many, openAll(t, files)...)
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < len(many); i += 4 {
				askAbout(many[i], 10)
			}
		})
	}
	wg.Wait()
	for _, tab := range append(many, first...) {
		if refused := tab.Modules()[0].Refused(); len(refused) > 0 {
			t.Error(refused)
		}
		tab.Close()
		tab.Close()
	}
	if now := budget.Process().Used(); now > before {
		t.Errorf("%d bytes are taken when all is closed, %d before", now, before)
	}
	runtime.KeepAlive(append(many, first...))
	if len(debugShelf.on) != 0 {
		t.Errorf("debug information of %d files is left", len(debugShelf.on))
	}
}

// Real programs and libraries, all open at once and asked about a hundred functions each, stay below the budget; and it is true: what is
// taken is about what they use.
func TestRealFilesStayBelowTheBudget(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	toolchain := strings.TrimSpace(string(root))
	var files []string
	for _, pattern := range []string{
		filepath.Join(toolchain, "bin/*"), filepath.Join(toolchain, "pkg/tool/*/*"), "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/bin/python3*", "/usr/bin/gdb", "/usr/sbin/mysqld",
	} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		files = append(files, found...)
	}
	exe, err := os.Executable()
	must(t, err)
	files = append(files, exe)
	before := quietBudget()
	heap := liveHeap()
	all := openAll(t, files)
	for _, tab := range all {
		askAbout(tab, 100)
		if refused := tab.Modules()[0].Refused(); len(refused) > 0 {
			t.Error(refused)
		}
	}
	taken, real := budget.Process().Used()-before, liveHeap()-heap
	t.Logf("%d files: %d KB are taken, %d KB are used", len(all), taken>>10, real>>10)
	if len(all) < 8 || taken > budget.Process().Limit() {
		t.Errorf("%d files take %d bytes of %d", len(all), taken, budget.Process().Limit())
	}
	if taken > 2*real || real > 2*taken {
		t.Errorf("%d bytes are taken for %d that are used", taken, real)
	}
	for _, tab := range all {
		tab.Close()
	}
	if now := budget.Process().Used(); now > before {
		t.Errorf("%d bytes are taken when all is closed, %d before", now, before)
	}
	runtime.KeepAlive(all)
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A file that is over the budget is refused in one sentence, gives no half answers, and takes nothing.
func TestWhatTheBudgetRefusesIsNotAnsweredInHalves(t *testing.T) {
	path := build(t, "results.go")
	whole := file(t, path)
	at := one(t, whole, "main.Structs").Addr
	want, err := whole.Results(at)
	must(t, err)
	_, wantLine, _ := whole.Line(at)
	whole.Close()
	others := budget.Process().Open()
	defer others.Close()
	answered := 0
	for room := uint64(0); room < 12<<20; room += 96 << 10 {
		others.Close()
		used := budget.Process().Used()
		must(t, others.Take(budget.Process().Limit()-used-room, "the others"))
		tab, err := OpenFile(path)
		if errors.Is(err, budget.ErrOver) {
			others.Close()
			if now := budget.Process().Used(); now > used {
				t.Errorf("with %d bytes of room it left %d", room, now-used)
			}
			continue
		}
		must(t, err)
		results, err := tab.Results(at)
		switch {
		case err == nil && len(results) == len(want):
			answered++
			for i := range want {
				if results[i].Type != want[i].Type {
					t.Errorf("with %d bytes of room a type is %s, want %s", room, results[i].Type, want[i].Type)
				}
			}
		case err == nil:
			t.Errorf("with %d bytes of room there are %d results, want %d", room, len(results), len(want))
		}
		if _, line, ok := tab.Line(at); ok && line != wantLine {
			t.Errorf("with %d bytes of room it is line %d, want %d", room, line, wantLine)
		}
		if err != nil && len(tab.Modules()[0].Refused()) == 0 {
			t.Errorf("with %d bytes of room it was not told that anything is refused: %v", room, err)
		}
		others.Close()
		tab.Close()
		if now := budget.Process().Used(); now > used {
			t.Errorf("with %d bytes of room it left %d", room, now-used)
		}
	}
	if answered == 0 {
		t.Error("it was never answered")
	}
}

package symbols

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// tellTimesApart has files that were just made shared, too.
func tellTimesApart(t *testing.T) {
	before := coarsestTime
	coarsestTime = 0
	t.Cleanup(func() { coarsestTime = before })
}

// symbolsIn is the symbol table of the file, as a new Table of tg has it until the test ends, or only until it is returned.
func symbolsIn(t *testing.T, tg *target, path string, closes bool) *symtab {
	t.Helper()
	tab, err := Open(tg.pid, tg.mem)
	must(t, err)
	if closes {
		defer tab.Close()
	} else {
		t.Cleanup(func() { tab.Close() })
	}
	for _, m := range tab.Modules() {
		if m.Path == path {
			return m.symbols()
		}
	}
	t.Fatalf("%s is not mapped", path)
	return nil
}

func TestSymbolsOfAFileAreReadOnceForAllProcesses(t *testing.T) {
	tellTimesApart(t)
	path := build(t, "names.c")
	first := symbolsIn(t, start(t, path), path, true)
	tg := start(t, path)
	for range 2 {
		if symbolsIn(t, tg, path, false) != first {
			t.Error("they were read again")
		}
	}
	m := tg.open(t).Modules()[0]
	must(t, m.img.f.file.Close())
	if m.symbols() != first {
		t.Error("they can't be had without reading the file")
	}
	if got := one(t, tg.open(t), "visible"); got.Addr != tg.said["visible"] {
		t.Errorf("visible is %+v, the program says %v", got, tg.said["visible"])
	}
	stripped := build(t, "names.c", "-s")
	if symbolsIn(t, start(t, stripped), stripped, true) == first {
		t.Error("another file has the same")
	}
}

// TestSymbolsOfAFileThatHasChangedAreReadAnew: also if it was changed in place, while a Table has them.
func TestSymbolsOfAFileThatHasChangedAreReadAnew(t *testing.T) {
	tellTimesApart(t)
	lib := build(t, "plugin.c", "-shared", "-fPIC")
	tg := start(t, build(t, "loader.c", "-ldl"))
	tg.tell(t, "open "+lib, "done")
	first := symbolsIn(t, tg, lib, false)
	if len(named(first, "plugin_entry")) == 0 || symbolsIn(t, tg, lib, false) != first {
		t.Fatal("the symbols are not shared")
	}
	content, err := os.ReadFile(lib)
	must(t, err)
	f, err := os.OpenFile(lib, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(bytes.ReplaceAll(content, []byte("plugin_entry"), []byte("plugin_other")))
	must(t, err)
	must(t, f.Close())
	changed := symbolsIn(t, tg, lib, false)
	if len(named(changed, "plugin_entry")) != 0 || len(named(changed, "plugin_other")) == 0 {
		t.Error("the symbols are those from before the file has changed")
	}
	if len(named(first, "plugin_entry")) == 0 {
		t.Error("those that were read before have changed")
	}
}

func named(s *symtab, name string) (found []*entry) {
	s.eachNamed(name, func(e *entry) { found = append(found, e) })
	return found
}

// TestSymbolsOfAFileThatMayStillChangeAreNotShared: its next change might have the same time.
func TestSymbolsOfAFileThatMayStillChangeAreNotShared(t *testing.T) {
	path := build(t, "names.c")
	must(t, os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0))) // the time of the last change tells nevertheless
	tg := start(t, path)
	first := symbolsIn(t, tg, path, false)
	if symbolsIn(t, tg, path, false) == first {
		t.Error("they are shared")
	}
}

func TestAQuestionThatIsAskedAgainHasTheSameAnswer(t *testing.T) {
	tellTimesApart(t)
	for _, src := range []string{"names.c", "overload.cc"} {
		path := build(t, src)
		alone, err := OpenFile(path)
		must(t, err)
		names := []string{"", "nothing", "main.", "mai*", "*", "a[...]", "a/b"}
		for _, s := range alone.Symbols("") {
			names = append(names, s.Linkage, s.Name, s.Name[1:], s.Name[:1]+"*")
		}
		for range 2 {
			tab := start(t, path).open(t)
			for _, name := range names {
				want, in := linkAnswer(alone, name), tab.Modules()[0].Name+":"+name
				if got, again := linkAnswer(tab, in), linkAnswer(tab, in); got != want || again != want {
					t.Errorf("%s: %q: %s, then %s, want %s", src, name, got, again, want)
				}
			}
		}
		must(t, alone.Close())
	}
}

// linkAnswer is a name's link-time addresses.
func linkAnswer(tab *Table, name string) (s string) {
	locs, _ := tab.Resolve(context.Background(), name)
	for _, l := range locs {
		s += fmt.Sprintf("%s at %#x; ", l, uint64(l.Addr)-l.Symbol.Module.Bias)
	}
	return s
}

// thing is what a shelf of the test has.
type thing struct {
	bytes uint64
	drops *int
}

func (x thing) size() uint64 { return x.bytes }
func (x thing) drop()        { *x.drops++ }

func TestAShelfKeepsWhatNobodyUsesOnlyUpToItsLimit(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		kept  int
	}{{0, 16}, {64 << 10, 16}, {300 << 10, 3}, {1 << 20, 1}, {1<<20 + 1, 0}} {
		s, drops := newShelf[int, thing](1<<20), 0
		_, leave := s.add(-1, thing{c.bytes, &drops})
		for i := range 100 {
			_, leave := s.add(i, thing{c.bytes, &drops})
			leave()
			leave()
			if _, leave, ok := s.find(0); ok { // so it is never the longest unused
				leave()
			} else if c.kept > 1 {
				t.Fatalf("%d bytes: what is used again and again was dropped", c.bytes)
			}
		}
		if kept := len(s.on) - 1; kept != c.kept || len(s.idle) != c.kept || drops != 100-c.kept || s.idleSize > s.most {
			t.Errorf("%d of 100 things of %d bytes are kept, want %d; %d were dropped", kept, c.bytes, c.kept, drops)
		}
		if _, leave, ok := s.find(-1); !ok {
			t.Error("what somebody uses was dropped")
		} else {
			leave()
		}
		if some := s.clear(); some != (c.kept > 0) || len(s.on) != 1 || s.idleSize != 0 || s.clear() {
			t.Errorf("%d things are left, %d bytes of them unused", len(s.on), s.idleSize)
		}
		if leave(); c.kept > 0 && !s.clear() || drops != 101 {
			t.Errorf("%d of 101 were dropped", drops)
		}
	}
}

package symbols

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestAnIndexChangesNoAnswer resolves every name of this program, and some that are
// not there, with an index and without.
func TestAnIndexChangesNoAnswer(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := OpenFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	indexed, err := OpenFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer indexed.Close()
	indexed.IndexNames(t.Context())
	names := []string{"", "nothing", "main.", "runtime.memmove.abi0"}
	for i, s := range plain.Symbols("") {
		if i%50 == 0 {
			names = append(names, s.Linkage, s.Linkage[1:])
		}
	}
	for _, name := range names {
		if a, b := answer(plain, name), answer(indexed, name); a != b {
			t.Errorf("%q: %s without an index, %s with one", name, a, b)
		}
	}
}

// TestAnIndexedNameOfAModuleIsNotSearchedFor: module:name could be a name as a whole, of any
// spelling; a search for those makes a text of each symbol that it looks at.
func TestAnIndexedNameOfAModuleIsNotSearchedFor(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	table, err := OpenFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	table.IndexNames(t.Context())
	for _, spec := range []string{"runtime.memmove", "runtime.memmove+1"} {
		spec = filepath.Base(exe) + ":" + spec
		allocated := testing.AllocsPerRun(3, func() {
			if locs, err := table.Resolve(t.Context(), spec); err != nil || len(locs) != 1 {
				t.Fatalf("%s: %v, %v", spec, locs, err)
			}
		})
		if most := float64(len(table.Symbols(""))) / 10; allocated > most {
			t.Errorf("%s is answered with %.0f allocations, want fewer than %.0f", spec, allocated, most)
		}
	}
}

func answer(t *Table, name string) (s string) {
	locs, err := t.Resolve(context.Background(), name)
	for _, l := range locs {
		s += fmt.Sprintf("%s %s %s; ", l, l.Addr, l.Symbol.Source)
	}
	return s + fmt.Sprint(err)
}

// TestAnIndexFindsAllOfAName: local functions of one name, and versions of one.
func TestAnIndexFindsAllOfAName(t *testing.T) {
	s := &symtab{blobs: []blob{{str: []byte("\x00f\x00g\x00f@V1\x00f@@V2\x00ff\x00\x00")}}}
	for _, name := range []uint32{1, 3, 5, 1, 10, 16, 3, 19} {
		s.entries = append(s.entries, entry{name: name})
	}
	all := func(name string) (found []int) {
		s.eachNamed(name, func(e *entry) {
			for i := range s.entries {
				if e == &s.entries[i] {
					found = append(found, i)
				}
			}
		})
		return found
	}
	names := []string{"f", "g", "ff", "h", "f@V1", ""}
	var plain [][]int
	for _, name := range names {
		plain = append(plain, all(name))
	}
	s.indexNames()
	for i, name := range names {
		if found := all(name); !slices.Equal(found, plain[i]) {
			t.Errorf("%q: entries %v without an index, %v with one", name, plain[i], found)
		}
	}
	if !slices.Equal(plain[0], []int{0, 2, 3, 4}) {
		t.Errorf("f is entries %v", plain[0])
	}
}

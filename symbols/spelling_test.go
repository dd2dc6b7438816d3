package symbols

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestListsOfSpellingsChangeNoAnswer asks for names of all spellings, and for parts of names, with the lists and without.
func TestListsOfSpellingsChangeNoAnswer(t *testing.T) {
	exe, err := os.Executable() // of Go: most names are marked
	must(t, err)
	for path, few := range map[string]bool{build(t, "names.c"): true, build(t, "overload.cc"): false, exe: false} {
		listed, err := OpenFile(path)
		must(t, err)
		defer listed.Close()
		plain, err := OpenFile(path)
		must(t, err)
		defer plain.Close()
		st := plain.Modules()[0].symbols()
		st.spellOnce.Do(func() {}) // no lists
		if _, ok := listed.Modules()[0].symbols().spelt(marked); few && !ok {
			t.Errorf("%s: no list is used", path)
		}
		names := []string{"", "nothing", "main.", ".", "/", "a[...]", "a/b", "_Z", "_"}
		for i, s := range plain.Symbols("") {
			if few || i%200 == 0 {
				stem, _, _ := strings.Cut(s.Linkage, ".")
				names = append(names, s.Linkage, s.Name, s.Name[1:], stem, s.Linkage+".part.0", s.Linkage[strings.LastIndex(s.Linkage, "/")+1:])
			}
		}
		for _, name := range names {
			if a, b := answer(plain, name), answer(listed, name); a != b {
				t.Errorf("%s: %q: %s without lists, %s with them", path, name, a, b)
			}
		}
	}
}

// TestANameThatAProgramLacksIsNotLookedForEverywhere: thousands of such may be sought in each program that is executed.
func TestANameThatAProgramLacksIsNotLookedForEverywhere(t *testing.T) {
	s := newSymtab()
	str := []byte("\x00")
	for _, name := range []string{"f", "g", "f.part.0", "h", "i", "j", "k", "f.cold", "_Zx", "ff.part.0", "l", "m", "n", "f@V1.2", "o", "p", "q", "r"} {
		s.entries = append(s.entries, entry{name: uint32(len(str))})
		str = append(append(str, name...), 0)
	}
	s.blobs = []blob{{str: str}}
	for _, c := range []struct {
		where among
		looks int
	}{{among{kind: mangled}, 1}, {among{marked, "f."}, 2}, {among{marked, "g."}, 0}, {among{marked, "z."}, 0}, {among{kind: marked}, 4}, {among{}, len(s.entries)}} {
		looks := 0
		s.searched("x", c.where, func(*symtab, *entry) bool { looks++; return false })
		if looks != c.looks {
			t.Errorf("%+v: %d entries were looked at, want %d", c.where, looks, c.looks)
		}
	}
}

// TestFindExplainsNoUnknownModule: it would look for names that are alike.
func TestFindExplainsNoUnknownModule(t *testing.T) {
	tab, err := OpenFile(build(t, "names.c"))
	must(t, err)
	defer tab.Close()
	if _, err := tab.Find(t.Context(), "nothing.so:f"); !errors.Is(err, ErrUnknownModule) || strings.Contains(err.Error(), "the process has") {
		t.Errorf("Find says %v", err)
	}
	if _, err := tab.Resolve(t.Context(), "nothing.so:f"); !errors.Is(err, ErrUnknownModule) || !strings.Contains(err.Error(), "the process has") {
		t.Errorf("Resolve says %v", err)
	}
}

// TestANameOfAModuleIsNoReadableName: the compiler's own names hold a colon only in pairs, or in brackets. To look for others among tens of thousands takes long.
func TestANameOfAModuleIsNoReadableName(t *testing.T) {
	tab, err := OpenFile(build(t, "overload.cc"))
	must(t, err)
	defer tab.Close()
	st := tab.Modules()[0].symbols()
	st.spellOnce.Do(func() {}) // no lists
	st.answers.isUsed = true
	for name, asked := range map[string]bool{"f": true, "a::f": true, "f[abi:cxx11]": true, "f(a::b)": true, "make:f": false, "make:a::f": false} {
		_, err := tab.Find(t.Context(), name)
		if _, is := st.answers.kept["demangled "+name]; is != asked {
			t.Errorf("%s: %v, that it was looked for among readable names, want %v (%v)", name, is, asked, err)
		}
	}
}

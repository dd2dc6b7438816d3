package symbols

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Who names a function of a stripped file is told so, and what would help.
func TestAnUnknownSymbolOfAStrippedFileIsAnsweredByWhatIsThere(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string // a regular expression; empty for nothing
	}{
		{[]string{"-s", "-rdynamic", "-Wl,--build-id=0x0123456789"}, `prog is stripped, and names [1-9][0-9]* functions; install its debug package \(build ID 0123456789\)`},
		{[]string{"-s", "-Wl,--build-id=none"}, `prog is stripped, and names no function; install its debug package \(it has no build ID\)`},
		{nil, ""},
	} {
		tab := start(t, build(t, "names.c", c.flags...)).open(t)
		for _, spec := range []string{"no_such_function", "prog:no_such_function", "no_such*"} {
			_, err := tab.Resolve(t.Context(), spec)
			said := fmt.Sprint(err)
			if got := strings.Contains(said, "stripped"); !errors.Is(err, ErrUnknownSymbol) || got != (c.want != "") || !regexp.MustCompile(c.want).MatchString(said) {
				t.Errorf("%v, %s: %s, want %s", c.flags, spec, said, c.want)
			}
		}
		if _, err := tab.Resolve(t.Context(), "libc.so.6:no_such_function"); strings.Contains(fmt.Sprint(err), "prog") {
			t.Errorf("about another file: %v", err)
		}
	}
}

// A file is found by each of its paths: /lib is a link to /usr/lib on many systems.
func TestAModuleIsFoundByTheNameOfALink(t *testing.T) {
	tg := start(t, build(t, "names.c"))
	tab := tg.open(t)
	m := one(t, tab, "malloc").Symbol.Module
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(m.Path), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{m.Path, filepath.Join(link, filepath.Base(m.Path))} {
		if locs, err := tab.Resolve(t.Context(), path+":malloc"); err != nil || len(locs) != 1 || locs[0].Addr != tg.said["malloc"] {
			t.Errorf("%s:malloc is %v, %v; want %#x", path, locs, err, tg.said["malloc"])
		}
	}
	if _, err := tab.Resolve(t.Context(), link+"/nothing.so:malloc"); !errors.Is(err, ErrUnknownModule) {
		t.Errorf("a path to nothing: %v", err)
	}
}

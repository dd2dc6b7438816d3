package symbols

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startWith starts a program with more variables in its environment.
func startWith(t *testing.T, path string, env ...string) *target {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), env...)
	return startCmd(t, cmd)
}

// same compares what PlaceAgain tells with what Find does, for every function of every module, and returns how many PlaceAgain has told, and how many of them
// without a search.
func same(t *testing.T, tab *Table, marks map[string]*Mark) (told, kept int) {
	t.Helper()
	must(t, tab.IndexNames(context.Background()))
	for _, m := range tab.Modules() {
		for _, s := range tab.Symbols(m.Name + ":*") {
			spec := m.Name + ":" + s.Linkage
			mk := marks[spec]
			if mk == nil {
				mk = new(Mark)
				marks[spec] = mk
			}
			was := *mk
			at, ok := tab.PlaceAgain(spec, mk)
			if fresh, also := tab.Place(spec); also != (ok && !mk.indirect) || also && fresh != at {
				t.Errorf("%s is at %v (%v), without its mark at %v (%v)", spec, at, ok, fresh, also)
			}
			if !ok {
				continue
			}
			if told++; was.symbols != 0 && was == *mk {
				kept++
			}
			if found, err := tab.Find(context.Background(), spec); err != nil || len(found) != 1 || found[0].Addr != at {
				t.Errorf("%s is at %v, and is found at %v: %v", spec, at, found, err)
			}
		}
	}
	return told, kept
}

// TestPlacesAreThoseThatAreFound in programs of the same and of other files, one after the other: with a library that takes the place of libc's names, with other
// implementations of indirect functions, with two libraries of one name.
func TestPlacesAreThoseThatAreFound(t *testing.T) {
	tellTimesApart(t)
	c, cxx, lib := build(t, "names.c"), build(t, "overload.cc"), build(t, "plugin.c", "-shared", "-fPIC")
	twin := build(t, "plugin.c", "-shared", "-fPIC", "-falign-functions=256") // both are called prog, as c is
	marks := map[string]*Mark{}
	for i, tg := range []*target{
		start(t, c), start(t, c), startWith(t, c, "LD_PRELOAD="+lib), start(t, cxx), startWith(t, c, "LD_PRELOAD="+lib+":"+twin),
		startWith(t, c, "LD_BIND_NOW=1"), startWith(t, c, "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-SSSE3"),
		start(t, build(t, "names.c", "-static")), start(t, build(t, "plain.go")), start(t, c),
	} {
		tab := tg.open(t)
		told, kept := same(t, tab, marks)
		if _, err := tab.Place("libc.so.6:malloc"); !err && i < 7 {
			t.Errorf("program %d: libc.so.6:malloc is not told", i)
		}
		if i == 1 && kept < told*9/10 || i == 9 && kept < told/2 || i < 7 && told < 2000 {
			t.Errorf("program %d: %d places are told, %d of them without a search", i, told, kept)
		}
	}
}

// TestAMarkIsOfAFileAsItWas: one that was replaced, or written to, is searched.
func TestAMarkIsOfAFileAsItWas(t *testing.T) {
	tellTimesApart(t)
	dir := t.TempDir()
	lib := filepath.Join(dir, "libpl.so")
	put := func(flags ...string) {
		must(t, os.Rename(build(t, "plugin.c", append(flags, "-shared", "-fPIC")...), lib))
	}
	loader, mk := build(t, "loader.c", "-ldl"), new(Mark)
	var likes []Likeness
	look := func() (off uint64, id uint64) {
		tg := start(t, loader)
		tg.tell(t, "open "+lib, "done")
		tab := tg.open(t)
		at, ok := tab.PlaceAgain("libpl.so:plugin_entry", mk)
		if !ok || at != tg.said["plugin_entry"] {
			t.Errorf("it is told to be at %v (%v), the program says %v", at, ok, tg.said["plugin_entry"])
		}
		like, ok := tab.Likeness("libpl.so:*")
		if likes = append(likes, like); !ok {
			t.Error("the library is like no other")
		}
		return mk.value, mk.symbols
	}
	put()
	off, id := look()
	if again, same := look(); again != off || same != id {
		t.Error("the mark was not used")
	}
	put("-falign-functions=1024")
	moved, other := look()
	if moved == off || other == id {
		t.Errorf("it is at %#x, and was at %#x", moved, off)
	}
	content, err := os.ReadFile(lib)
	must(t, err)
	must(t, os.WriteFile(lib, append(content, 0), 0o755)) // in place, by somebody else
	if _, written := look(); written == other {
		t.Error("a file that was written to counts as the same")
	}
	if likes[0] != likes[1] || likes[1] == likes[2] || likes[2] == likes[3] {
		t.Errorf("likenesses are %v", likes)
	}
}

// odd is a C program with a function of a name that nothing but assembly can have.
func odd(t *testing.T, name string) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "odd.c")
	must(t, os.WriteFile(src, fmt.Appendf(nil, `#include <stdio.h>
int odd(void) __asm__("\"%s\"");
int odd(void) { return 1; }
int main(void)
{
	printf("odd %%p\n", (void *)odd);
	printf("ready %%d\n", odd());
	fflush(stdout);
	while (getchar() != EOF)
		;
}
`, name), 0o644))
	out := filepath.Join(filepath.Dir(src), "odd")
	run(t, "gcc", "-o", out, src)
	return out
}

// TestANameMayLookAsIfItHadAModule: then it is that function which is meant, as ever, and no pattern is like in a program without it.
func TestANameMayLookAsIfItHadAModule(t *testing.T) {
	tellTimesApart(t)
	mk := new(Mark)
	plain := start(t, build(t, "names.c")).open(t)
	if _, ok := plain.PlaceAgain("libc.so.6:write", mk); !ok {
		t.Fatal("libc.so.6:write is not told")
	}
	tg := start(t, odd(t, "libc.so.6:write"))
	tab := tg.open(t)
	if at, ok := tab.PlaceAgain("libc.so.6:write", mk); ok && at != tg.said["odd"] {
		t.Errorf("it is told to be at %v, the program says %v", at, tg.said["odd"])
	}
	if at := one(t, tab, "libc.so.6:write").Addr; at != tg.said["odd"] {
		t.Errorf("it is found at %v, the program says %v", at, tg.said["odd"])
	}
	for _, name := range []string{"libc.so.6:write", "_ZN9libc.so.65writeEv", "_ZN16libc$u2e$so$u2e$65write17h0123456789abcdefE"} {
		if _, ok := start(t, odd(t, name)).open(t).Likeness("libc.so.6:wr*"); ok {
			t.Errorf("a program with %s is like others", name)
		}
	}
	if _, ok := plain.Likeness("libc.so.6:wr*"); !ok {
		t.Error("a plain program is like no others")
	}
	for _, spec := range []string{"", "write", "0x12:a", "libc.so.6:0x12", "libc.so.6:write+1", "libc.so.6:12", "libc.so.6:mem*", "a::b", "libc.so.6:a b", " libc.so.6:write", "/lib/libc.so.6:write", "nonesuch.so:write"} {
		if at, ok := plain.Place(spec); ok {
			t.Errorf("%q is told to be at %v", spec, at)
		}
	}
	for _, spec := range []string{"", "*", "mem*", "prog:*", "libc.so.6:mem*+*", "libc.so.6:mem*+4", "libc.so.6:memcpy", "libc.so.6:a[a-z]*", "libc.so.6:*operator*", "nonesuch.so:*"} {
		if _, ok := plain.Likeness(spec); ok {
			t.Errorf("%q is alike", spec)
		}
	}
}

// meaning is what a pattern stands for, in terms of the files.
func meaning(t *testing.T, tab *Table, pattern string) string {
	t.Helper()
	found, err := tab.Resolve(context.Background(), pattern)
	must(t, err)
	all := map[string]bool{}
	for _, l := range found {
		name := l.Symbol.ModuleName() + ":" + l.Symbol.Linkage
		at, err := tab.Find(context.Background(), name)
		alone := err == nil && len(at) == 1 && at[0].Addr == l.Addr
		all[fmt.Sprintf("%s %#x %v", name, uint64(l.Addr)-l.Symbol.Module.Bias, alone)] = true
	}
	for _, s := range tab.Unbound(pattern) {
		all["unbound "+s.Linkage] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), "\n")
}

// TestAlikePatternsMeanTheSame in programs of several files, whose indirect functions are bound otherwise. Programs of the same files are alike.
func TestAlikePatternsMeanTheSame(t *testing.T) {
	tellTimesApart(t)
	c, cxx, lib := build(t, "names.c", "-Wl,-z,now"), build(t, "overload.cc"), build(t, "plugin.c", "-shared", "-fPIC")
	const tunables = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-SSSE3"
	programs := []*target{
		start(t, c), start(t, c), start(t, cxx), startWith(t, c, "LD_PRELOAD="+lib), startWith(t, c, tunables), startWith(t, c, tunables), start(t, c),
	}
	var tabs []*Table
	for _, tg := range programs {
		tabs = append(tabs, tg.open(t))
	}
	for _, tab := range tabs {
		must(t, tab.IndexNames(context.Background()))
	}
	for _, pattern := range []string{"libc.so.6:*", "libc.so.6:mem*", "libc.so.6:str???", "libc.so.6:*time*", "libc.so.6:wr*", "libc:wr*", "libc.so:s*", "ld-linux-x86-64.so.2:_dl_*"} {
		meant := map[Likeness]string{}
		var likes []Likeness
		for i, tab := range tabs {
			like, ok := tab.Likeness(pattern)
			if likes = append(likes, like); !ok && pattern == "libc.so.6:*" {
				t.Errorf("%s: program %d is like no other", pattern, i)
			}
			if !ok {
				continue
			}
			now := meaning(t, tab, pattern)
			if before, known := meant[like]; known && before != now {
				t.Errorf("%s: programs that are alike differ: %s\n\nand %s", pattern, before, now)
			}
			meant[like] = now
		}
		if likes[0] != likes[1] || likes[0] != likes[6] || likes[4] != likes[5] {
			t.Errorf("%s: the same programs are not alike", pattern)
		}
	}
	if now, before := meaning(t, tabs[4], "libc.so.6:mem*"), meaning(t, tabs[0], "libc.so.6:mem*"); now == before {
		t.Log("glibc.cpu.hwcaps changes nothing here")
	}
}

// TestTheVDSOIsReadOnce for all processes, which have it at different places, and is there when a Table is closed.
func TestTheVDSOIsReadOnce(t *testing.T) {
	of := func(tab *Table) *Module {
		for _, m := range tab.Modules() {
			if m.Kind == KindVDSO {
				return m
			}
		}
		t.Fatal("there is no vdso")
		return nil
	}
	path := build(t, "names.c")
	tg := start(t, path)
	first, err := Open(tg.pid, tg.mem)
	must(t, err)
	second := start(t, path).open(t)
	if of(first).img != of(second).img {
		t.Error("it was read twice")
	}
	must(t, first.Close())
	one(t, second, "vdso:__vdso_clock_gettime")
}

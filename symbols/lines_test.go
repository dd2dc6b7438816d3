package symbols

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestLinesAgreeWithAddr2line(t *testing.T) {
	for _, flags := range [][]string{{"-g"}, {"-gdwarf-4", "-O2"}, {"-g", "-O2", "-no-pie"}} {
		prog := build(t, "lines.c", flags...)
		tab := file(t, prog)
		for _, fn := range []string{"main", "loop"} {
			r, ok := tab.Function(one(t, tab, fn).Addr)
			if !ok {
				t.Fatalf("%s has no bounds", fn)
			}
			var args []string
			for a := r.Start; a < r.End; a++ {
				args = append(args, a.String())
			}
			want := strings.Fields(run(t, "addr2line", append([]string{"-e", prog}, args...)...))
			want = onlyPlaces(want)
			for i, a := 0, r.Start; a < r.End; i, a = i+1, a+1 {
				f, line, _ := tab.Line(a)
				got := fmt.Sprintf("%s:%d", f[strings.LastIndexByte(f, '/')+1:], line)
				if !strings.HasSuffix(want[i], "/"+got) && !strings.HasSuffix(want[i], ":?") {
					t.Errorf("%v: line at %v is %s, addr2line says %s", flags, a, got, want[i])
				}
			}
		}
	}
}

// onlyPlaces drops addr2line's "(discriminator N)".
func onlyPlaces(words []string) []string {
	var out []string
	for _, w := range words {
		if strings.Contains(w, ":") {
			out = append(out, w)
		}
	}
	return out
}

func TestALineNamesOnePlaceInEachInlinedCopy(t *testing.T) {
	tab := file(t, build(t, "lines.c", "-g", "-O0"))
	for _, c := range []struct {
		spec string
		n    int
	}{
		{"lines.c:4", 2}, {"lines.c:9", 1}, {"lines.c:11", 1}, {"testdata/lines.c:16", 1}, {"./lines.c:16", 1}, {"prog:lines.c:16", 1},
	} {
		locs, err := tab.Resolve(t.Context(), c.spec)
		if err != nil || len(locs) != c.n {
			t.Errorf("%s = %v, %v, want %d places", c.spec, locs, err, c.n)
		}
		for _, l := range locs {
			if f, line, ok := tab.Line(l.Addr); !ok || l.Line != line || !strings.HasSuffix(f, "lines.c") {
				t.Errorf("%s: %v is %s:%d", c.spec, l.Addr, f, line)
			}
		}
	}
	if _, err := tab.Resolve(t.Context(), "lines.c:5000"); !errors.Is(err, ErrNoLine) {
		t.Errorf("lines.c:5000: %v", err)
	}
	if _, err := tab.Resolve(t.Context(), "lines.c:1"); !errors.Is(err, ErrNoLine) {
		t.Errorf("lines.c:1: %v", err)
	}
	if _, err := tab.Resolve(t.Context(), "lines.c:3"); err == nil || !strings.Contains(err.Error(), "code nearby: 4") {
		t.Errorf("lines.c:3: %v, want the lines nearby", err)
	}
}

func TestLinesOfAStrippedFileSayWhichDebugFileIsMissing(t *testing.T) {
	tab := file(t, build(t, "lines.c", "-s"), WithDebugDirs("/nowhere"))
	_, err := tab.Resolve(t.Context(), "lines.c:9")
	if !errors.Is(err, ErrNoLines) || !strings.Contains(err.Error(), "/nowhere/.build-id/") {
		t.Errorf("error %v, want one that names the debug file", err)
	}
	if _, _, ok := tab.Line(arch.Addr(entryOf(tab))); ok {
		t.Error("a stripped file has a line")
	}
}

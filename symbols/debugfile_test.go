package symbols

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// splitDebug moves prog's debug information to a file and strips prog.
func splitDebug(t *testing.T, prog, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "objcopy", "--only-keep-debug", prog, to)
	run(t, "strip", prog)
}

func checkDebugFile(t *testing.T, tab *Table) {
	t.Helper()
	loc := one(t, tab, "loop")
	if loc.Symbol.Source != SourceDebugFile {
		t.Errorf("loop comes from %s", loc.Symbol.Source)
	}
	if one(t, tab, "lines.c:11").Symbol.Name != "loop" {
		t.Error("the line is not in loop")
	}
	params, err := tab.Params(loc.Addr)
	if err != nil || len(params) != 1 || params[0].Name != "n" || params[0].Type != "int" {
		t.Errorf("parameters are %v, %v", params, err)
	}
}

func TestDebugFilesAreFoundByBuildID(t *testing.T) {
	prog := build(t, "lines.c", "-g", "-Wl,--build-id")
	dir := t.TempDir()
	id := file(t, prog).Modules()[0].BuildID
	if len(id) != 40 || !strings.Contains(run(t, "readelf", "-n", prog), id) {
		t.Fatalf("build ID is %q", id)
	}
	splitDebug(t, prog, filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug"))
	checkDebugFile(t, file(t, prog, WithDebugDirs(dir)))
}

func TestDebugFilesAreFoundByDebugLink(t *testing.T) {
	for _, flag := range []string{"-Wl,--build-id", "-Wl,--build-id=none"} {
		prog := build(t, "lines.c", "-g", flag)
		debug := filepath.Join(filepath.Dir(prog), ".debug", "prog.debug")
		splitDebug(t, prog, debug)
		run(t, "objcopy", "--add-gnu-debuglink="+debug, prog)
		checkDebugFile(t, file(t, prog))

		other := build(t, "lines.c", "-g", "-O2", flag)
		run(t, "objcopy", "--only-keep-debug", other, debug)
		if _, err := file(t, prog).Resolve(t.Context(), "loop"); err == nil {
			t.Errorf("%s: a debug file of another program was used", flag)
		}
	}
}

func TestMiniDebugInformationIsRead(t *testing.T) {
	testprog.Need(t, "xz")
	prog := build(t, "names.c")
	want := one(t, file(t, prog), "hidden").Addr
	mini := filepath.Join(t.TempDir(), "mini")
	run(t, "objcopy", "-S", "--remove-section=.comment", "--keep-symbol=hidden", prog, mini)
	run(t, "xz", mini)
	run(t, "strip", prog)
	run(t, "objcopy", "--add-section", ".gnu_debugdata="+mini+".xz", prog)
	if loc := one(t, file(t, prog), "hidden"); loc.Addr != want || loc.Symbol.Source != SourceMiniDebug {
		t.Errorf("hidden is %+v, want %v", loc, want)
	}
}

func TestAStrippedFunctionHasTheBoundsOfItsFrameEntry(t *testing.T) {
	prog := build(t, "names.c", "-O1")
	full := file(t, prog)
	loc := one(t, full, "hidden")
	run(t, "strip", prog)
	bare := file(t, prog)
	r, ok := bare.Function(loc.Addr + 2)
	if !ok || r.Start != loc.Addr || r.Len() != loc.Symbol.Size {
		t.Errorf("bounds are %v, %v, want %d bytes at %v", r, ok, loc.Symbol.Size, loc.Addr)
	}
	got, ok := bare.Lookup(loc.Addr + 2)
	if !ok || got.Symbol.Name != "" || got.Symbol.Source != SourceFrames || got.Offset != 2 {
		t.Errorf("Lookup = %+v", got)
	}
}

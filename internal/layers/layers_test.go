package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func goList(t *testing.T, env ...string) []Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,GoFiles,CgoFiles", "./...")
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []Package
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func table(t *testing.T) []Row {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Table(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func rowOf(rows []Row, p Package) (Row, bool) {
	room := strings.TrimPrefix(p.ImportPath, Module+"/")
	i := slices.IndexFunc(rows, func(r Row) bool { ok, _ := path.Match(r.Room, room); return ok })
	if i < 0 {
		return Row{}, false
	}
	return rows[i], true
}

func TestImportsAreAsArchitectureSays(t *testing.T) {
	packages := goList(t, "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	for _, v := range Violations(table(t), packages) {
		t.Error(v)
	}
}

func TestOnlyRoomsThatListXSysCallTheKernel(t *testing.T) {
	rows := table(t)
	for _, p := range goList(t, "GOOS=linux", "GOARCH=amd64") {
		if row, ok := rowOf(rows, p); ok && row.MayCallKernel() {
			continue
		}
		calls, err := KernelCalls(p)
		if err != nil {
			t.Error(err)
		}
		for _, c := range calls {
			t.Errorf("%s: %s: only rooms that list %s may call the kernel", p.ImportPath, c, xsys)
		}
	}
}

func TestPureRoomsAreTheSameOnEveryHost(t *testing.T) {
	rows := table(t)
	linux, other := goList(t, "GOOS=linux", "GOARCH=amd64"), goList(t, "GOOS=windows", "GOARCH=arm64")
	build := []string{"build"}
	for _, p := range linux {
		row, ok := rowOf(rows, p)
		if !ok || !row.Pure {
			continue
		}
		build = append(build, p.ImportPath)
		i := slices.IndexFunc(other, func(o Package) bool { return o.ImportPath == p.ImportPath })
		if i < 0 || !slices.Equal(p.GoFiles, other[i].GoFiles) {
			t.Errorf("%s has files with build constraints", p.ImportPath)
		}
	}
	cmd := exec.Command("go", build...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS=windows", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %s for windows/arm64: %v\n%s", strings.Join(build, " "), err, out)
	}
}

const sample = `
| other | table |
|---|---|
| x | y |

| room | may import | outside modules | pure |
|---|---|---|---|
| ` + "`hub`" + ` | ` + "`low`, `leaf/*`" + ` | golang.org/x/sys | |
| low | | golang.org/x/arch/x86/x86asm | pure |
| leaf/* | low | | |

More text | with bars.
`

func TestTableIsReadFromMarkdown(t *testing.T) {
	rows, err := Table(sample)
	if err != nil || len(rows) != 3 || !slices.Equal(rows[0].Rooms, []string{"low", "leaf/*"}) || !rows[1].Pure || rows[2].Pure ||
		!rows[0].MayCallKernel() || rows[1].MayCallKernel() {
		t.Errorf("%+v, %v", rows, err)
	}
	for _, bad := range []string{"", "no table", strings.Replace(sample, "| pure |\n| leaf", "| maybe |\n| leaf", 1)} {
		if _, err := Table(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestEveryKindOfViolationIsFound(t *testing.T) {
	rows, err := Table(sample)
	if err != nil {
		t.Fatal(err)
	}
	good := []Package{
		{ImportPath: Module + "/hub", Imports: []string{"os", "unsafe", Module + "/low", Module + "/leaf/a", "golang.org/x/sys/unix"}},
		{ImportPath: Module + "/low", Imports: []string{"fmt", "syscall", "golang.org/x/arch/x86/x86asm"}},
		{ImportPath: Module + "/leaf/a", Imports: []string{Module + "/low", "os/exec"}},
	}
	if v := Violations(rows, good); len(v) != 0 {
		t.Errorf("found %q", v)
	}
	with := func(i int, imp string) []Package {
		p := slices.Clone(good)
		p[i].Imports = append(slices.Clone(p[i].Imports), imp)
		return p
	}
	tests := []struct {
		name     string
		packages []Package
		want     string
	}{
		{"an arrow up", with(1, Module+"/hub"), "low imports " + Module + "/hub"},
		{"a room that only looks like an allowed one", with(0, Module+"/lower"), "lower: its row does not list that room"},
		{"an unlisted module", with(2, "github.com/x/y"), "does not list that module"},
		{"another package of a listed module", with(1, "golang.org/x/arch/arm/armasm"), "does not list that module"},
		{"a pure room that opens files", with(1, "os"), "the room is pure"},
		{"a pure room that runs programs", with(1, "os/exec"), "the room is pure"},
		{"a room without a row", append(slices.Clone(good), Package{ImportPath: Module + "/new"}), "new has no row"},
		{"a row without a room", good[:2], "leaf/* has a row"},
		{"cgo", append(slices.Clone(good), Package{ImportPath: Module + "/leaf/c", CgoFiles: []string{"c.go"}}), "uses cgo"},
	}
	for _, tt := range tests {
		if v := Violations(rows, tt.packages); len(v) != 1 || !strings.Contains(v[0], tt.want) {
			t.Errorf("%s: found %q, want one with %q", tt.name, v, tt.want)
		}
	}
}

func TestKernelCallsAreToldFromConstants(t *testing.T) {
	dir := t.TempDir()
	src := `package p
import ("syscall"; u "golang.org/x/sys/unix"; unix "example.com/other")
var _ = []any{syscall.EINVAL, u.SIGTRAP, u.SYS_MMAP, syscall.Errno(1), u.SignalName, unix.Kill}
func f() { u.Kill(1, 2); _, _ = syscall.Wait4, 0 }
`
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	calls, err := KernelCalls(Package{Dir: dir, GoFiles: []string{"p.go"}})
	if err != nil || !slices.Equal(calls, []string{"p.go:4: u.Kill", "p.go:4: syscall.Wait4"}) {
		t.Errorf("%q, %v", calls, err)
	}
}

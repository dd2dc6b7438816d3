package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ofOneProcessor are the files that name what is of one processor all the same, and why.
var ofOneProcessor = map[string]string{
	"examples/kprobe/main.go": "prints a register by its name, as the kernel's sample does: it is a user's program",
}

func TestOneProcessorIsKnownInItsRoomsOnly(t *testing.T) {
	used := map[string]bool{}
	for _, p := range goList(t, "GOOS=linux", "GOARCH=amd64") {
		room := strings.TrimPrefix(p.ImportPath, Module+"/")
		if strings.HasPrefix(room, "arch/") || room == "internal/host" || room == "internal/layers" {
			continue
		}
		found, err := Processor(p)
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			file, _, _ := strings.Cut(f, ":")
			if used[room+"/"+file] = true; ofOneProcessor[room+"/"+file] == "" {
				t.Errorf("%s/%s: that is one processor's: rooms but arch/… ask internal/host; an exception has a reason in this test", room, f)
			}
		}
	}
	for file := range ofOneProcessor {
		if !used[file] {
			t.Errorf("%s is an exception for no reason", file)
		}
	}
}

func TestWhatIsOfOneProcessorIsSeen(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{
		"a.go":      "package p\nimport _ \"" + Module + "/arch/amd64\"\nvar _ = []byte{0xcc, 0xcd}\nvar FooAMD64 = r.Rip\n",
		"b.go":      "//go:build !arm64\n\npackage p\n\nvar _ = []string{\"rdi\", \"rdix\", \"flags\", \"eflags\"}\n",
		"c_amd64.s": "", "d_test.go": "package p\nvar _ = 0xcc\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Processor(Package{Dir: dir})
	if err != nil || len(found) != 8 {
		t.Errorf("found %q, %v", found, err)
	}
}

// TestASecondProcessorFits builds everything for an architecture that is not there yet.
func TestASecondProcessorFits(t *testing.T) {
	cmd := exec.Command("go", "build", "./...")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build for linux/arm64: %v\n%s", err, out)
	}
}

func TestEveryPermissionIsUsed(t *testing.T) {
	packages := append(goList(t, "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1"), goList(t, "GOOS=linux", "GOARCH=arm64")...)
	for _, u := range Unused(table(t), packages) {
		t.Error(u)
	}
}

func TestAPermissionThatNobodyUsesIsSeen(t *testing.T) {
	rows, err := Table(sample)
	if err != nil {
		t.Fatal(err)
	}
	packages := []Package{
		{ImportPath: Module + "/hub", Imports: []string{"golang.org/x/sys/unix", Module + "/leaf/a"}},
		{ImportPath: Module + "/low", Imports: []string{"golang.org/x/arch/arm/armasm"}},
		{ImportPath: Module + "/leaf/a", Imports: []string{"fmt"}},
		{ImportPath: Module + "/leaf/b", Imports: []string{Module + "/low"}},
	}
	unused := Unused(rows, packages)
	if strings.Join(unused, "; ") != "hub may import low, and does not; low may import golang.org/x/arch/x86/x86asm, and does not" {
		t.Errorf("%q", unused)
	}
}

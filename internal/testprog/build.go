// Package testprog builds small target programs and talks to them over pipes, so
// that tests wait for what a program says and never for time to pass. It also
// tells whether a program was left as it was found.
//
// A fixture is testdata/NAME.{c,cc,S,rs} or a Go main package testdata/NAME. It
// prints "ready", obeys commands on its standard input, and at its end prints
// "right" or "wrong N": it checks all its results itself, so a probed run is
// compared with an unprobed one by the fixture's own verdict.
package testprog

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//go:embed testdata
var sources embed.FS

// Build compiles the fixture name and returns the path of the program. flags go
// to gcc, g++, rustc or go build, after "-O1 -g -pthread" for the first two. Every
// (name, flags) is built once: results are kept between test processes, for as
// long as no source and no compiler changes. Other users may run the program.
// Build is safe for concurrent use; it fails t when the compiler does.
func Build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	bin, err := build(name, flags)
	if err != nil {
		t.Fatalf("testprog: build %s %s: %v", name, strings.Join(flags, " "), err)
	}
	return bin
}

// MustBuild is Build for examples, which have no test to fail.
func MustBuild(name string, flags ...string) string {
	bin, err := build(name, flags)
	if err != nil {
		panic(fmt.Sprintf("testprog: build %s: %v", name, err))
	}
	return bin
}

// Need skips a test where programs are not installed. Continuous integration takes a skipped test for a failure.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: make setup-test installs it", name)
		}
	}
}

var (
	buildMu sync.Mutex
	built   = map[string]string{} // name and flags to path
)

func build(name string, flags []string) (string, error) {
	buildMu.Lock()
	defer buildMu.Unlock()
	id := name + "\x00" + strings.Join(flags, "\x00")
	if bin, ok := built[id]; ok {
		return bin, nil
	}
	dir, err := sourceDir()
	if err != nil {
		return "", err
	}
	cmd, err := compiler(dir, name)
	if err != nil {
		return "", err
	}
	version, err := exec.Command(cmd.args[0], cmd.version).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd.args[0], err)
	}
	sum := sha256.Sum256([]byte(id + "\x00" + string(version)))
	bin := filepath.Join(dir, "bin", hex.EncodeToString(sum[:6]), name)
	if _, err := os.Stat(bin); errors.Is(err, fs.ErrNotExist) {
		if err := cmd.compile(bin, flags); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	built[id] = bin
	return bin, nil
}

// command is how one fixture is compiled.
type command struct {
	args    []string // up to the output file
	source  []string
	version string // the argument that makes the compiler print its version
	env     []string
}

func compiler(dir, name string) (command, error) {
	base := []string{"-O1", "-g", "-pthread"}
	for ext, cc := range map[string]string{".c": "gcc", ".S": "gcc", ".cc": "g++"} {
		src := filepath.Join(dir, name+ext)
		if exists(src) {
			return command{args: append([]string{cc}, base...), source: []string{src}, version: "--version"}, nil
		}
	}
	if src := filepath.Join(dir, name+".rs"); exists(src) {
		return command{args: []string{"rustc", "-O", "-g"}, source: []string{src}, version: "--version"}, nil
	}
	src, _ := filepath.Glob(filepath.Join(dir, name, "*.go"))
	if len(src) == 0 {
		return command{}, fmt.Errorf("no fixture of that name")
	}
	return command{args: []string{"go", "build"}, source: src, version: "version", env: []string{"GOFLAGS=", "GOWORK=off"}}, nil
}

func exists(file string) bool { _, err := os.Stat(file); return err == nil }

// compile writes bin at once or not at all: other test processes may be building
// the same program.
func (c command) compile(bin string, flags []string) error {
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d", bin, os.Getpid())
	args := slices.Concat(c.args, []string{"-o", tmp})
	if c.args[0] == "go" { // go build wants flags first, gcc wants libraries last
		args = slices.Concat(args, flags, c.source)
	} else {
		args = slices.Concat(args, c.source, flags)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, bin)
}

// sourceDir unpacks the fixtures' sources into a directory that is named by what
// they hold.
var sourceDir = sync.OnceValues(func() (string, error) {
	hash := sha256.New()
	files := map[string][]byte{}
	err := fs.WalkDir(sources, "testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		files[strings.TrimPrefix(path, "testdata/")] = b
		fmt.Fprintf(hash, "%s %d\n%s", path, len(b), b)
		return err
	})
	if err != nil {
		return "", err
	}
	root, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, hex.EncodeToString(hash.Sum(nil)[:6]))
	for name, b := range files {
		if err := writeOnce(filepath.Join(dir, name), b); err != nil {
			return "", err
		}
	}
	return dir, nil
})

// cacheDir is a directory that only this user can write to and all can enter, so
// that tests may run a fixture as another user.
func cacheDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("gokprobe-testprog-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && info.IsDir() && int(st.Uid) == os.Getuid() && info.Mode().Perm()&0o022 == 0 {
		return dir, nil
	}
	return "", fmt.Errorf("%s is not a directory that only this user can write to: remove it", dir)
}

func writeOnce(file string, b []byte) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

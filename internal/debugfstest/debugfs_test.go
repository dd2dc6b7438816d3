//go:build linux

package debugfstest

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/debugfs"
	"github.com/gokprobe/gokprobe/internal/door"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// modes are the ways in which hits are handled: in the program and by the tracer.
var modes = map[string]kprobes.Options{"optimized": {}, "traced": {NoOptimize: true}}

// TestSelftests runs each script of testdata, whose name is that of the kernel's file with the extension
// sh in place of tc, with its own program, session and mount.
func TestSelftests(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	bin := compile(t, "prey", "prey.c", "twin.c", "-ldl")
	plug := compile(t, "plug.so", "plug.c", "-shared", "-fPIC")
	for _, script := range scripts {
		name := strings.TrimSuffix(strings.TrimPrefix(script, "testdata/"), ".sh")
		for mode, options := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) { newBench(t, bin, plug, options).run(script) })
		}
	}
}

// compile makes a program or a library of sources in testdata; arguments with a dash are gcc's.
func compile(t *testing.T, name string, sources ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	args := []string{"-O1", "-g", "-pthread", "-I../testprog/testdata", "-o", out}
	for _, s := range sources {
		if !strings.HasPrefix(s, "-") {
			s = filepath.Join("testdata", s)
		}
		args = append(args, s)
	}
	if message, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, message)
	}
	return out
}

// bench is a program whose session is mounted.
type bench struct {
	*testing.T
	prey    *testprog.Prog
	session *kprobes.Session
	dir     string
	env     []string
}

func newBench(t *testing.T, bin, plug string, o kprobes.Options) *bench {
	o.Log = func(m string) { t.Logf("session: %s", m) }
	b := &bench{T: t, prey: testprog.Start(t, bin), dir: t.TempDir()}
	b.env = append(os.Environ(), "PREY="+bin, "PLUG="+plug, fmt.Sprintf("OFFSET=%#x", fileOffset(t, bin, "target")),
		"LC_ALL=C", "PID="+fmt.Sprint(b.prey.PID()))
	var err error
	if b.session, err = kprobes.Attach(context.Background(), b.prey.PID(), o); err != nil {
		t.Fatalf("attach: %v", err)
	}
	tree := debugfs.New(b.session, debugfs.Options{})
	t.Cleanup(func() {
		if err := errors.Join(tree.Close(), b.session.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		if verdict := b.prey.Quit(); verdict != "right" {
			t.Errorf("the program says %s", verdict)
		}
	})
	m, err := door.Mount(tree, b.dir, door.MountOptions{Source: "selftest"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return b
}

// fileOffset is where a function's code lies in its file.
func fileOffset(t *testing.T, bin, function string) uint64 {
	t.Helper()
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == function {
			text := f.Sections[s.Section]
			return s.Value - text.Addr + text.Offset
		}
	}
	t.Fatalf("no function %s", function)
	return 0
}

// run runs a script and does what it asks for on file descriptor 3; answers go to 4.
func (b *bench) run(script string) {
	asks, toAsk := pipe(b)
	toAnswer, answers := pipe(b)
	var out bytes.Buffer
	cmd := exec.Command("sh", "-eux", "-c", `. "$1"; cd "$2"; . "$3"`, "sh", abs(b, "testdata/lib.sh"),
		filepath.Join(b.dir, "tracing"), abs(b, script))
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = b.env, &out, &out, []*os.File{toAsk, toAnswer}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_ = toAsk.Close()
	_ = toAnswer.Close()
	for lines := bufio.NewScanner(asks); lines.Scan(); {
		if _, err := fmt.Fprintln(answers, b.answer(lines.Text())); err != nil {
			b.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		lines := strings.Split(out.String(), "\n") // of -x, too
		b.Errorf("%s: %v\n%s", script, err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// answer has the program do something, once all probes are as they are to be.
func (b *bench) answer(question string) string {
	b.session.WaitForOptimizer(context.Background())
	if question == "settle" {
		return "settled"
	}
	return b.prey.Do(question, "ret")
}

func pipe(b *bench) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func abs(b *bench, name string) string {
	path, err := filepath.Abs(name)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

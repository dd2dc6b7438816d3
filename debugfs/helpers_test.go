package debugfs_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/debugfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// tree is the files of a fixture that runs, until the test ends; then the fixture is checked to be as it was.
type tree struct {
	*debugfs.Tree
	t       testing.TB
	session *kprobes.Session
	prog    *testprog.Prog
}

func open(t testing.TB, fixture string, o kprobes.Options) *tree {
	t.Helper()
	return openProg(t, testprog.Start(t, testprog.Build(t, fixture)), o)
}

func openProg(t testing.TB, p *testprog.Prog, o kprobes.Options) *tree {
	t.Helper()
	if o.Log == nil {
		o.Log = func(m string) { t.Errorf("session warns: %s", m) }
	}
	s, err := kprobes.Attach(context.Background(), p.PID(), o)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	tr := &tree{Tree: debugfs.New(s, debugfs.Options{}), t: t, session: s, prog: p}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil && !errors.Is(err, kprobes.ErrExited) {
			t.Errorf("close: %v", err)
		}
		if n := len(s.Probes()); n != 0 {
			t.Errorf("%d probes are left", n)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

// cat is a file's content.
func (t *tree) cat(name string) string {
	t.t.Helper()
	f, err := t.Open(name)
	if err != nil {
		t.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		t.t.Fatal(err)
	}
	return string(data)
}

// add is echo text >> name.
func (t *tree) add(name, text string) error {
	_, err := t.Write(name, []byte(text+"\n"))
	return err
}

// set is echo text > name.
func (t *tree) set(name, text string) error {
	if err := t.Truncate(name); err != nil {
		return err
	}
	return t.add(name, text)
}

// must is set or add, which has to be possible.
func (t *tree) must(err error) {
	t.t.Helper()
	if err != nil {
		t.t.Fatal(err)
	}
}

// wants fails the test unless err matches want.
func (t *tree) refused(err, want error) {
	t.t.Helper()
	if !errors.Is(err, want) {
		t.t.Errorf("error %v, want %v", err, want)
	}
}

func (t *tree) is(name, want string) {
	t.t.Helper()
	if got := t.cat(name); got != want {
		t.t.Errorf("%s is\n%q, want\n%q", name, got, want)
	}
}

// lines are the lines of the trace, without its head and what stands in front of the event's name.
func (t *tree) lines() []string {
	t.t.Helper()
	var all []string
	for line := range strings.Lines(t.cat("tracing/trace")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, body, ok := strings.Cut(line, "] ..... "); ok {
			_, line, _ = strings.Cut(body, ": ")
		}
		all = append(all, strings.TrimSuffix(line, "\n"))
	}
	return all
}

// errNoProcess is the errno of a session whose process has ended.
const errNoProcess = syscall.ESRCH

const errInvalid = syscall.EINVAL

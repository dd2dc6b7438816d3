package door

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheSocketIsPrivate(t *testing.T) {
	_, s, _ := opened(t)
	for name, mode := range map[string]fs.FileMode{s.Name(): fs.ModeSocket | 0o600, filepath.Dir(s.Name()): fs.ModeDir | 0o700} {
		if fi, err := os.Lstat(name); err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v %v", name, fi.Mode(), err)
		}
	}
}

func TestADirectoryThatIsNotOursIsRefused(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, dir string) error{
		"others may enter": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o711))
		},
		"a link": func(t *testing.T, dir string) error { return os.Symlink(t.TempDir(), dir) },
		"another's": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody))
		},
		"a file": func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		run := t.TempDir()
		t.Setenv("XDG_RUNTIME_DIR", run)
		if err := make(t, filepath.Join(run, "gokprobe")); err != nil {
			t.Fatal(name, err)
		}
		if s, err := Listen(testPID, newFakeTree()); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = s.Close()
			}
		}
		if _, err := Dial(testPID); !errors.Is(err, ErrUnsafe) || !errors.Is(err, ErrNoSession) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutASessionTheErrorSaysSo(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if _, err := Dial(testPID); !errors.Is(err, ErrNoSession) {
		t.Error(err)
	}
}

func TestTheSocketOfAKilledSessionIsReplaced(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	l, err := listen(testPID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(testPID); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second session for the same process: %v", err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if _, err := Dial(testPID); !errors.Is(err, ErrNoSession) {
		t.Errorf("a killed session: %v", err)
	}
	s, err := Listen(testPID, newFakeTree())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatKilledSessionsOfEndedProcessesLeftIsSweptAway(t *testing.T) {
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	for pid, killed := range map[int]bool{testPID: false, testPID + 1: true, os.Getpid(): true} {
		l, err := listen(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if killed {
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}
	}
	l, err := listen(1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for pid, want := range map[int]bool{1: true, testPID: true, testPID + 1: false, os.Getpid(): true} {
		if _, err := os.Lstat(socketName(filepath.Join(run, "gokprobe"), pid)); (err == nil) != want {
			t.Errorf("%d: %v", pid, err)
		}
	}
}

func TestALongRuntimeDirectoryIsPassedOver(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", maxSocketName))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", long)
	s, err := Listen(testPID, newFakeTree())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if c, err := Dial(testPID); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

package door

import (
	"errors"
	"fmt"
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

// elsewhere has this test's directories for sockets below one of its own: the user's, root's, and that where everybody may make some.
func elsewhere(t *testing.T) (user, root, tmp string) {
	t.Helper()
	base := t.TempDir()
	oldRoot, oldRun, oldTmp := rootDir, runDir, tmpDir
	t.Cleanup(func() { rootDir, runDir, tmpDir = oldRoot, oldRun, oldTmp })
	user, rootDir, runDir, tmpDir = filepath.Join(base, "user"), filepath.Join(base, "root"), filepath.Join(base, "run"), filepath.Join(base, "tmp")
	for _, dir := range []string{user, rootDir, runDir, tmpDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", user)
	return user, rootDir, tmpDir
}

// taken are ways to take a directory's name away.
var taken = map[string]func(t *testing.T, dir string) error{
	"others may enter": func(_ *testing.T, dir string) error {
		return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o711))
	},
	"a link": func(t *testing.T, dir string) error { return os.Symlink(t.TempDir(), dir) },
	"another's": func(_ *testing.T, dir string) error {
		return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody))
	},
	"a file": func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) },
}

func TestADirectoryThatIsNotOursIsPassedOver(t *testing.T) {
	for name, take := range taken {
		user, _, tmp := elsewhere(t)
		if err := errors.Join(take(t, filepath.Join(user, dirName)), take(t, filepath.Join(tmp, fmt.Sprintf("%s-%d", dirName, os.Geteuid())))); err != nil {
			t.Fatal(name, err)
		}
		s, err := Listen(testPID, newFakeTree())
		if os.Geteuid() != 0 { // all of another user's are taken
			if !errors.Is(err, ErrUnsafe) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c, err := Dial(testPID); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			_ = c.Close()
		}
		_ = s.Close()
	}
}

func TestWithEveryDirectoryTakenThereIsNoSocket(t *testing.T) {
	for name, take := range taken {
		user, root, tmp := elsewhere(t)
		runDir = filepath.Join(root, "none")
		for _, dir := range []string{filepath.Join(user, dirName), filepath.Join(root, dirName), filepath.Join(tmp, fmt.Sprintf("%s-%d", dirName, os.Geteuid()))} {
			if err := take(t, dir); err != nil {
				t.Fatal(name, err)
			}
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

// TestADirectoryThatIsReplacedAfterTheLookIsNotFollowed: what was looked at is what is used.
func TestADirectoryThatIsReplacedAfterTheLookIsNotFollowed(t *testing.T) {
	base, trap := t.TempDir(), t.TempDir()
	name := filepath.Join(base, dirName)
	d, err := makePrivate(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(name, name+".old"), os.Symlink(trap, name)); err != nil {
		t.Fatal(err)
	}
	l, err := listenIn(d, testPID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := os.Lstat(filepath.Join(name+".old", socketFile(testPID))); err != nil {
		t.Error(err)
	}
	if found, err := os.ReadDir(trap); err != nil || len(found) > 0 {
		t.Error(found, err)
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
		if _, err := os.Lstat(filepath.Join(run, dirName, socketFile(pid))); (err == nil) != want {
			t.Errorf("%d: %v", pid, err)
		}
	}
}

// TestALongRuntimeDirectoryIsNoObstacle: a Unix socket's address holds 107 bytes.
func TestALongRuntimeDirectoryIsNoObstacle(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 200))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", long)
	s, err := Listen(testPID, newFakeTree())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.HasPrefix(s.Name(), long) {
		t.Error(s.Name())
	}
	if c, err := Dial(testPID); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

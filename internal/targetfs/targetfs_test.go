package targetfs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// under opens dir as the root of lookups.
func under(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// identity is what a lookup has found, or its error.
func identity(fd int, err error) string {
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	info, err := infoOf(fd)
	return fmt.Sprint(info.Dev, info.Inode, err)
}

// ways are the kernel's lookup and ours.
var ways = map[string]func(int, string) (int, error){"openat2": beneath, "walk": walk}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsSettledIfNoChangeOfItCanHaveTheSameTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte("one"), 0o600))
	must(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	f, err := Named(path)
	must(t, err)
	defer f.Close()
	if !f.Settled(0) || f.Settled(time.Hour) {
		t.Error("a file that was changed is settled for an hour, or not at all")
	}
	for f.Changed == changed(t, path) { // until the kernel's clock goes on
		must(t, os.WriteFile(path, []byte("two"), 0o600))
		must(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	}
	if f.Settled(0) {
		t.Error("a file that has changed since it was opened is settled")
	}
	f.sworn = true
	f.Info, err = f.stat()
	must(t, err)
	if f.Settled(0) {
		t.Error("a file whose times are what its owner says is settled")
	}
}

func changed(t *testing.T, path string) int64 {
	t.Helper()
	info, err := Own().Stat(path)
	must(t, err)
	return info.Changed
}

func TestLookupsStayBelowTheRoot(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "secret")
	must(t, os.WriteFile(outside, []byte("outside"), 0o600))
	jail := filepath.Join(dir, "jail")
	must(t, os.MkdirAll(filepath.Join(jail, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(jail, "secret"), []byte("inside"), 0o600))
	for link, to := range map[string]string{
		"up": "../../../../secret", "abs": "/secret", "a/b/up": "../../../../secret", "host": outside,
		"loop": "loop", "dirs": "a/b/../../..", "chain": "abs", "magic": "/proc/self/root/etc/passwd",
	} {
		must(t, os.Symlink(to, filepath.Join(jail, link)))
	}
	inside, err := os.Stat(filepath.Join(jail, "secret"))
	must(t, err)
	for way, find := range ways {
		root := under(t, jail)
		for name, ok := range map[string]bool{
			"/secret": true, "secret": true, "../secret": true, "/a/b/../../../../secret": true, "up": true, "abs": true,
			"a/b/up": true, "dirs/secret": true, "chain": true, "./a/.//b/up": true,
			"host": false, "loop": false, "magic": false, "secret/": false, "secret/..": false, "secret/../secret": false, "none": false, "": false,
		} {
			fd, err := find(root, name)
			if (err == nil) != ok {
				if err != nil || way != "walk" || name != "" { // an empty name is the root there
					t.Errorf("%s %q: %v", way, name, err)
				}
			}
			if err == nil && ok {
				f, err := reopen(fd, name)
				must(t, err)
				b, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
				if string(b) != "inside" || err != nil || f.Inode != inode(t, inside) {
					t.Errorf("%s %q leads to %q, %v", way, name, b, err)
				}
				f.Close()
			}
			if err == nil {
				unix.Close(fd)
			}
		}
	}
}

func inode(t *testing.T, fi os.FileInfo) uint64 {
	t.Helper()
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no inode number")
	}
	return st.Ino
}

// The kernel is the oracle of our own walk.
func TestTheWalkFindsWhatTheKernelFinds(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		paths := []string{""}
		part := func() string { return string(rune('a' + r.IntN(4))) }
		name := func() string {
			var parts []string
			for range 1 + r.IntN(5) {
				parts = append(parts, []string{part(), part(), part(), "..", ".", ""}[r.IntN(6)])
			}
			return strings.Repeat("/", r.IntN(2)) + strings.Join(parts, "/")
		}
		for range 40 {
			at := filepath.Join(paths[r.IntN(len(paths))], part())
			switch r.IntN(3) {
			case 0:
				if os.Mkdir(filepath.Join(dir, at), 0o755) == nil {
					paths = append(paths, at)
				}
			case 1:
				_ = os.Symlink(name(), filepath.Join(dir, at)) // it may be there
			default:
				if f, err := os.OpenFile(filepath.Join(dir, at), os.O_CREATE|os.O_EXCL, 0o600); err == nil {
					f.Close()
				}
			}
		}
		root := under(t, dir)
		for range 200 {
			n := name()
			if strings.Trim(n, "/") == "" {
				continue
			}
			if kernel, ours := identity(beneath(root, n)), identity(walk(root, n)); kernel != ours {
				t.Fatalf("seed %d: %q is %s, by our walk %s", seed, n, kernel, ours)
			}
		}
	}
}

// opened counts how often the files were opened, by anybody: the kernel tells.
func opened(t *testing.T, files ...string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	for _, f := range files {
		_, err := unix.InotifyAddWatch(fd, f, unix.IN_OPEN)
		must(t, err)
	}
	return func() int {
		b := make([]byte, 4096)
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.EAGAIN) {
			return 0
		}
		must(t, err)
		return n / unix.SizeofInotifyEvent
	}
}

func TestWhatIsNoRegularFileIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, unix.Mkfifo(at("fifo"), 0o600))
	must(t, os.Symlink("fifo", at("link")))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	defer l.Close()
	bad := []string{at("fifo"), at("link"), at("socket"), dir, "/dev/null", "/dev/tty", "/proc/self/status", "/sys/kernel/notes"}
	if unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))) == nil { // /dev/full; not in every container
		bad = append(bad, at("device"))
	}
	count := opened(t, at("fifo"), at("socket"), "/dev/null")
	for _, name := range bad {
		if _, err := os.Stat(name); err != nil {
			continue
		}
		for way, open := range map[string]func(string) (*File, error){"Named": Named, "Own": Own().Open, "Of": Of(os.Getpid()).Open} {
			f, err := open(name)
			if err == nil {
				f.Close()
			}
			if !errors.Is(err, ErrNotRegular) {
				t.Errorf("%s %s: %v", way, name, err)
			}
		}
	}
	if n := count(); n != 0 {
		t.Errorf("%d times one of them was opened", n)
	}
	exe, err := Of(os.Getpid()).Executable()
	must(t, err)
	defer exe.Close()
	magic := make([]byte, 4)
	if _, err := exe.ReadAt(magic, 0); err != nil || string(magic) != "\x7fELF" {
		t.Errorf("our executable begins with %q, %v", magic, err)
	}
}

// A lease would have everybody else wait for its holder, for three quarters of a minute.
func TestALeaseDoesNotKeepUsWaiting(t *testing.T) {
	name := filepath.Join(t.TempDir(), "leased")
	must(t, os.WriteFile(name, make([]byte, 100), 0o600))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if _, err := Own().Open(name); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("it was opened: %v", err)
	}
}

func TestReadsEndWhereTheFileEnded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	content := make([]byte, 3*blockSize+77)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	for _, watch := range []bool{false, true} {
		must(t, os.WriteFile(name, content, 0o600))
		f, err := Own().Open(name)
		must(t, err)
		defer f.Close()
		f.watch = watch
		must(t, os.WriteFile(name, append(content[:len(content):len(content)], "more"...), 0o600))
		for range 2000 {
			off, n := r.IntN(len(content)+10), r.IntN(2*blockSize)
			b := make([]byte, n)
			got, err := f.ReadAt(b, int64(off))
			want := content[min(off, len(content)):min(off+n, len(content))]
			if string(b[:got]) != string(want) || (err != nil) != (got < n) || err != nil && !errors.Is(err, io.EOF) {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, got, err)
			}
		}
	}
}

// A FUSE server that answers nothing at all: who looks there waits in the kernel.
func TestAFileSystemThatDoesNotAnswerIsGivenUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	dir := t.TempDir()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)))
	t.Cleanup(func() {
		unix.Close(server) // all that wait get an error
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	files := Of(os.Getpid())
	name := filepath.Join(dir, "prog.debug")
	if _, err := files.Open(name); !errors.Is(err, ErrSlow) {
		t.Errorf("it was opened: %v", err)
	}
	if _, err := files.Stat(name); !errors.Is(err, ErrSlow) {
		t.Errorf("it was asked again: %v", err)
	}
}

package door

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

const testPID = 1 << 29 // no process has it

// opened serves a fake tree and dials it.

func opened(t *testing.T) (*fakeTree, *Server, *Client) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	tree := newFakeTree()
	s, err := Listen(testPID, tree)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.pipe.end()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := Dial(testPID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return tree, s, c
}

func TestARemoteTreeIsAFileSystem(t *testing.T) {
	tree, _, c := opened(t)
	tree.pipe.end() // TestFS reads all files to their ends
	if err := fstest.TestFS(hide{c, "broken"}, "kprobe_events", "list", "events/one/enable", "a b/ü#%41?", "empty"); err != nil {
		t.Error(err)
	}
}

// hide is a file system without one of its files.

type hide struct {
	fs.FS
	name string
}

func (h hide) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(h.FS, name)
	var left []fs.DirEntry
	for _, e := range entries {
		if e.Name() != h.name {
			left = append(left, e)
		}
	}
	return left, err
}

func (h hide) Open(name string) (fs.File, error) {
	f, err := h.FS.Open(name)
	if d, ok := f.(*clientDir); ok && name == "." {
		d.left, _ = h.ReadDir(name)
	}
	return f, err
}

func TestFilesAreWrittenAndReadThroughTheSocket(t *testing.T) {
	_, _, c := opened(t)
	if n, err := c.Write("kprobe_events", []byte("p:a b\np:c d\n")); n != 12 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := c.Write("kprobe_events", []byte("p:e f\n")); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	if b, err := fs.ReadFile(c, "kprobe_events"); string(b) != "p:a b\np:c d\np:e f\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if err := c.Truncate("kprobe_events"); err != nil {
		t.Error(err)
	}
	if b, err := fs.ReadFile(c, "kprobe_events"); len(b) != 0 || err != nil {
		t.Errorf("%q %v", b, err)
	}
}

func TestErrorsKeepTheirErrnoAndSentence(t *testing.T) {
	tree, _, c := opened(t)
	tree.set("", "1\n")
	write := func(name, text string) error { _, err := c.Write(name, []byte(text)); return err }
	open := func(name string) error { _, err := c.Open(name); return err }
	for what, row := range map[string]struct {
		err   error
		errno syscall.Errno
		text  string
	}{
		"truncating a busy file":     {c.Truncate("kprobe_events"), unix.EBUSY, "device or resource busy"},
		"a wrong value":              {write("events/one/enable", "7"), unix.EINVAL, "invalid argument"},
		"a file that can't":          {write("list", "x"), unix.EPERM, "operation not permitted"},
		"an error that only says Is": {write("kprobe_events", "p:x\x00"), unix.EILSEQ, "not on a boundary"},
		"no such file":               {open("nothing"), unix.ENOENT, "file does not exist"},
		"a name outside":             {open("../x"), unix.EINVAL, "invalid argument"},
		"too much":                   {write("kprobe_events", strings.Repeat("x", MaxWrite+1)), unix.E2BIG, "more than 1048576 bytes in one write"},
		"a file as a directory":      {func() error { _, err := c.ReadDir("list"); return err }(), unix.ENOTDIR, "not a directory"},
		"a stat of nothing":          {func() error { _, err := c.Stat("no/such"); return err }(), unix.ENOENT, "no such file or directory"},
	} {
		var pathErr *fs.PathError
		if Errno(row.err) != row.errno || !errors.As(row.err, &pathErr) || pathErr.Err.Error() != row.text {
			t.Errorf("%s: %v (%v)", what, row.err, Errno(row.err))
		}
	}
	if events, enable, _ := tree.get(); events != "" || enable != "1\n" {
		t.Errorf("changed: %q %q", events, enable)
	}
}

func TestAnErrorInTheMiddleOfAFileReachesTheReader(t *testing.T) {
	_, _, c := opened(t)
	f, err := c.Open("broken")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if string(b) != "half" || !errors.Is(err, unix.EOVERFLOW) {
		t.Errorf("%q %v", b, err)
	}
}

func TestTracePipeStreamsUntilTheSessionEnds(t *testing.T) {
	tree, s, c := opened(t)
	f, err := c.Open("trace_pipe") // does not wait for something to read
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 100)
	for _, text := range []string{"first\n", "second\n"} {
		tree.pipe.say(text)
		if n, err := f.Read(buf); string(buf[:n]) != text || err != nil {
			t.Fatalf("%q %v", buf[:n], err)
		}
	}
	tree.pipe.say("last\n")
	tree.pipe.end()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(f); string(b) != "last\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	c.Wait(t.Context())
	if _, err := os.Stat(s.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestAReaderThatGoesClosesTheFile(t *testing.T) {
	tree, _, c := opened(t)
	const readers = 5
	var files []fs.File
	for range readers {
		f, err := c.Open("trace_pipe")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	tree.pipe.waitReaders(readers)
	for _, f := range files {
		read := make(chan error)
		go func() {
			_, err := f.Read(make([]byte, 1))
			read <- err
		}()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a Read of a closed file: %v", err)
		}
	}
	tree.pipe.waitReaders(0)
}

func TestASlowReaderIsInNobodysWay(t *testing.T) {
	tree, s, c := opened(t)
	f, err := c.Open("trace_pipe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree.pipe.say(strings.Repeat("x", 8<<20)) // more than the socket holds
	if _, err := c.Write("kprobe_events", []byte("p:a b\n")); err != nil {
		t.Error(err)
	}
	tree.pipe.end()
	if err := s.Close(); err != nil { // after a second, without the rest
		t.Error(err)
	}
	if _, err := io.ReadAll(f); err == nil {
		t.Error("a reader that was left in the middle was told that this is the end")
	}
}

func TestManyWriteAtTheSameTime(t *testing.T) {
	tree, _, _ := opened(t)
	const writers, lines = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			c, err := Dial(testPID)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range lines {
				if _, err := c.Write("kprobe_events", fmt.Appendf(nil, "p:w%d_%d x\n", w, i)); err != nil {
					t.Error(err)
				}
			}
			_ = c.Close()
		})
	}
	wg.Wait()
	events, _, _ := tree.get()
	if n := strings.Count(events, "\n"); n != writers*lines {
		t.Errorf("%d lines", n)
	}
}

// request speaks HTTP with a socket, as curl does.

// endless is a body that never ends.

const nobody = 65534

// TestMain runs the test binary as a client of another user, or as somebody who mounts and is killed.

func TestMain(m *testing.M) {
	if dir := os.Getenv("DOOR_TEST_MOUNT"); dir != "" {
		if _, err := Mount(newFakeTree(), dir, MountOptions{}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("mounted")
		select {}
	}
	if socket := os.Getenv("DOOR_TEST_SOCKET"); socket != "" {
		_, err := newClient(nil, socket).Stat("list")
		fmt.Print(Errno(err), "|", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestOtherUsersAreKeptOut(t *testing.T) {
	_, s, _ := opened(t)
	stranger := func() string {
		dir := t.TempDir()
		exe, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "client")
		if err := errors.Join(os.WriteFile(program, exe, 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program)
		cmd.Dir = "/"
		cmd.Env = []string{"DOOR_TEST_SOCKET=" + s.Name()}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if out := stranger(); !strings.HasPrefix(out, "permission denied|") {
		t.Error("by the directory's mode:", out)
	}
	for dir := filepath.Dir(s.Name()); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(s.Name(), 0o666); err != nil {
		t.Fatal(err)
	}
	if out := stranger(); !strings.HasPrefix(out, "permission denied|stat list: ") {
		t.Error("by its user:", out)
	}
}

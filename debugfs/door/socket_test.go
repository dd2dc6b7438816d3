package door

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
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
func request(t *testing.T, s *Server, method, target string, body io.Reader) *http.Response {
	t.Helper()
	tr := &http.Transport{Dial: func(_, _ string) (net.Conn, error) { return net.Dial("unix", s.Name()) }} //nolint:staticcheck
	t.Cleanup(tr.CloseIdleConnections)
	req, err := http.NewRequest(method, "http://session"+target, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestHTTPSaysWhatItMeans(t *testing.T) {
	tree, s, _ := opened(t)
	tree.set("p:a b\n", "0\n")
	for _, row := range []struct {
		method, target, body string
		status               int
		errno, answer        string
	}{
		{"GET", "/kprobe_events", "", 200, "", "p:a b\n"},
		{"PUT", "/kprobe_events", "p:c d\n", 204, "", ""},
		{"POST", "/kprobe_events", "p:e f\n", 204, "", ""},
		{"GET", "//kprobe_events", "", 200, "", "p:c d\np:e f\n"},
		{"PUT", "/kprobe_events", "", 204, "", ""},
		{"GET", "/kprobe_events", "", 200, "", ""},
		{"GET", "/events", "", 409, "EISDIR", "is a directory\n"},
		{"GET", "/events/", "", 200, "", `[{"name":"one","mode":"dr-xr-xr-x","size":0}]` + "\n"},
		{"GET", "/empty/", "", 200, "", "[]\n"},
		{"GET", "/list/", "", 404, "ENOTDIR", "not a directory\n"},
		{"GET", "/nothing", "", 404, "ENOENT", "file does not exist\n"},
		{"GET", "/../../etc/passwd", "", 404, "ENOENT", "no such file or directory\n"},
		{"GET", "/a%20b/%C3%BC%23%2541%3F", "", 200, "", "odd\n"},
		{"POST", "/list", "x", 403, "EPERM", "operation not permitted\n"},
		{"POST", "/events/one/enable", "2", 400, "EINVAL", "invalid argument\n"},
		{"DELETE", "/list", "", 403, "EPERM", "operation not permitted\n"},
		{"PATCH", "/list", "", 405, "", ""},
	} {
		resp := request(t, s, row.method, row.target, strings.NewReader(row.body))
		answer, err := io.ReadAll(resp.Body)
		if resp.StatusCode != row.status || resp.Header.Get("X-Errno") != row.errno || string(answer) != row.answer || err != nil {
			t.Errorf("%s %s: %d %q %q %v", row.method, row.target, resp.StatusCode, resp.Header.Get("X-Errno"), answer, err)
		}
	}
	if info := request(t, s, "HEAD", "/list", nil).Header.Get("X-Info"); info != `{"name":"list","mode":"-r--------","size":0}` {
		t.Error(info)
	}
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }

func TestWhatIsTooLongChangesNothing(t *testing.T) {
	tree, s, _ := opened(t)
	tree.set("p:a b\n", "0\n")
	for _, size := range []int64{64 << 20, MaxWrite + 1} {
		for _, method := range []string{"PUT", "POST"} {
			resp := request(t, s, method, "/kprobe_events", io.LimitReader(endless{}, size))
			if resp.StatusCode != 413 || resp.Header.Get("X-Errno") != "E2BIG" {
				t.Errorf("%s of %d bytes: %v", method, size, resp.Status)
			}
		}
	}
	if events, _, writes := tree.get(); events != "p:a b\n" || writes != 0 {
		t.Errorf("%q after %d writes", events, writes)
	}
}

func TestAClientThatIsKilledInTheMiddleOfAWriteChangesNothing(t *testing.T) {
	tree, s, c := opened(t)
	tree.set("p:a b\n", "0\n")
	conn, err := net.Dial("unix", s.Name())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "PUT /kprobe_events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\np:c d\n")
	_ = conn.Close()
	err = s.Close()
	if events, _, _ := tree.get(); err != nil || events != "p:a b\n" {
		t.Errorf("%q %v", events, err)
	}
	if _, err := c.Open("list"); err == nil {
		t.Error("a file of a session that has ended could be opened")
	}
}

func TestRubbishIsNoRequest(t *testing.T) {
	_, s, _ := opened(t)
	conn, err := net.Dial("unix", s.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(bytes.Repeat([]byte{0, 0xff, '\r', '\n'}, 1<<10))
	b, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(b), "HTTP/1.1 400") {
		t.Errorf("%.50q", b)
	}
}

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

const nobody = 65534

// TestMain runs the test binary as a client of another user.
func TestMain(m *testing.M) {
	if socket := os.Getenv("DOOR_TEST_SOCKET"); socket != "" {
		_, err := newClient(socket).Stat("list")
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

package door

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// mounted mounts a fake tree.

func mounted(t *testing.T) (*fakeTree, string) {
	t.Helper()
	tree, dir := newFakeTree(), t.TempDir()
	m, err := Mount(tree, dir, MountOptions{Source: "test", Log: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.pipe.end()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Done()
		if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil {
			t.Errorf("%s is still mounted: %v %v", dir, entries, err)
		}
	})
	return tree, dir
}

func TestAMountedTreeIsAFileSystem(t *testing.T) {
	tree, dir := mounted(t)
	tree.pipe.end()
	if err := fstest.TestFS(without{os.DirFS(dir), "broken"}, "kprobe_events", "list", "events/one/enable", "a b/ü#%41?", "empty"); err != nil {
		t.Error(err)
	}
}

// without is a file system without one of the files of its root, and whose files can't seek: their sizes are 0.

type without struct {
	fs.FS
	name string
}

func (w without) Open(name string) (fs.File, error) {
	f, err := w.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		return struct{ fs.File }{f}, err
	}
	return &withoutDir{f.(fs.ReadDirFile), w.name}, nil
}

type withoutDir struct {
	fs.ReadDirFile
	name string
}

func (d *withoutDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == d.name }), err
}

// in makes a script that runs in a mounted directory. The shell has to go there itself: between fork and exec

// part of this process stands still, and so may the mounted files.

func in(dir, script string) *exec.Cmd {
	return exec.Command("sh", "-c", `cd "$1" || exit; eval "$2"`, "sh", dir, script)
}

// sh runs a script in a mounted directory and returns what it prints.

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := in(dir, script).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
	return string(out)
}

func TestTheShellReadsAndWritesMountedFiles(t *testing.T) {
	_, dir := mounted(t)
	for _, row := range []struct{ script, want string }{
		{"echo p:a b > kprobe_events; echo p:c d >> kprobe_events; cat kprobe_events", "p:a b\np:c d\n"},
		{"printf 'p:e f\\np:g h\\n' >> kprobe_events; wc -l < kprobe_events", "4\n"},
		{"> kprobe_events; cat kprobe_events", ""},
		{"stat -c '%A %s %U' list events events/one/enable", "-r-------- 0 root\ndr-xr-xr-x 0 root\n-rw-r----- 0 root\n"},
		{"ls events; ls -a empty", "one\n.\n..\n"},
		{"echo 1 > events/one/enable && cat events/one/enable", "1\n"},
		{"echo p:x y > kprobe_events; cat kprobe_events", "sh: 1: eval: cannot create kprobe_events: Device or resource busy\n"},
		{"echo 0 > events/one/enable; echo 7 > events/one/enable; cat events/one/enable", "sh: 1: echo: echo: I/O error\n0\n"},
		{"dd if=list bs=7 2>/dev/null", "0000000000401000  k  main+0x0    \n"},
		{"tail -c 5 list; head -c 4 list", "    \n0000"},
		{"exec 3< events/one/enable; cat <&3; cat events/one/enable >&2; cat <&3", "0\n0\n"},
		{"cp list /tmp/door-copy.$$; cat /tmp/door-copy.$$; rm /tmp/door-copy.$$", "0000000000401000  k  main+0x0    \n"},
		{"truncate -s 0 kprobe_events; touch list; echo ok", "ok\n"},
	} {
		if out, _ := in(dir, row.script).CombinedOutput(); string(out) != row.want {
			t.Errorf("%s: %q", row.script, out)
		}
	}
}

func TestMountedFilesHaveTheKernelsErrors(t *testing.T) {
	tree, dir := mounted(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, p []byte) error {
		f, err := os.OpenFile(at(name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(p)
		return err
	}
	_, create := os.Create(at("new"))
	_, missing := os.ReadFile(at("nothing"))
	_, broken := os.ReadFile(at("broken"))
	_, asDir := os.ReadDir(at("list"))
	tree.set("p:a b\n", "0\n")
	for what, row := range map[string]struct {
		err   error
		errno syscall.Errno
	}{
		"create":            {create, unix.EACCES},
		"mkdir":             {os.Mkdir(at("new"), 0o700), unix.EPERM},
		"mknod":             {unix.Mknod(at("new"), unix.S_IFIFO|0o600, 0), unix.EPERM},
		"remove":            {unix.Unlink(at("list")), unix.EPERM},
		"rmdir":             {unix.Rmdir(at("empty")), unix.EPERM},
		"rename":            {unix.Rename(at("list"), at("tsil")), unix.EPERM},
		"link":              {unix.Link(at("list"), at("tsil")), unix.EPERM},
		"symlink":           {unix.Symlink("list", at("tsil")), unix.EPERM},
		"chmod":             {unix.Chmod(at("list"), 0o777), unix.EPERM},
		"chown":             {unix.Chown(at("list"), 1, 1), unix.EPERM},
		"missing":           {missing, unix.ENOENT},
		"in the middle":     {broken, unix.EOVERFLOW},
		"file as directory": {asDir, unix.ENOTDIR},
		"wrong value":       {write("events/one/enable", []byte("2")), unix.EINVAL},
		"not written":       {write("list", []byte("2")), unix.EPERM},
		"by method":         {write("kprobe_events", []byte("p:x\x00")), unix.EILSEQ},
		"64 MB line":        {write("kprobe_events", bytes.Repeat([]byte("x"), 64<<20)), unix.EINVAL},
		"partly right":      {write("kprobe_events", []byte("p:c d\n\x00\n")), unix.EILSEQ},
	} {
		if !errors.Is(row.err, row.errno) {
			t.Errorf("%s: %v", what, row.err)
		}
	}
	if events, _, _ := tree.get(); events != "p:a b\np:c d\n" {
		t.Errorf("changed: %.50q", events)
	}
}

func TestAMountedPipeWaits(t *testing.T) {
	tree, dir := mounted(t)
	f, err := os.Open(filepath.Join(dir, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 100)
	for _, text := range []string{"first\n", "second\n"} {
		go tree.pipe.say(text)
		if n, err := f.Read(buf); string(buf[:n]) != text || err != nil {
			t.Errorf("%q %v", buf[:n], err)
		}
	}
	tree.pipe.say("123456")
	for _, text := range []string{"1234", "56"} {
		if n, err := f.Read(buf[:4]); string(buf[:n]) != text || err != nil {
			t.Errorf("%q %v", buf[:n], err)
		}
	}
	go tree.pipe.end()
	if n, err := f.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Error(n, err)
	}
}

func TestAReaderThatDoesNotWaitLosesNothing(t *testing.T) {
	tree, dir := mounted(t)
	fd, err := unix.Open(filepath.Join(dir, "trace_pipe"), unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 100)
	if n, err := unix.Read(fd, buf); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d %v", n, err)
	}
	tree.pipe.say("hello\n")
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if string(buf[:n]) != "hello\n" || err != nil {
			t.Errorf("%q %v", buf[:max(n, 0)], err)
		}
		return
	}
}

func TestAnInterruptedReaderLosesNothing(t *testing.T) {
	tree, dir := mounted(t)
	// timeout(1) interrupts the first cat; the file stays open.
	cmd := in(dir, `exec 3< trace_pipe; timeout -s INT 0.3 cat <&3; echo stopped; head -n 1 <&3`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len("stopped\n"))
	if _, err := io.ReadFull(out, buf); err != nil {
		t.Error(err)
	}
	tree.pipe.say("not lost\n")
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); string(rest) != "not lost\n" || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

func TestReadersThatWaitAreInNobodysWay(t *testing.T) {
	tree, dir := mounted(t)
	const readers = 40
	var cmds []*exec.Cmd
	for range readers {
		cmd := in(dir, "exec cat trace_pipe")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	tree.pipe.waitReaders(readers)
	if out := sh(t, dir, "echo p:a b > kprobe_events; cat kprobe_events"); out != "p:a b\n" {
		t.Errorf("%q", out)
	}
	for i, cmd := range cmds {
		if i%2 == 0 {
			_ = cmd.Process.Kill()
		} else {
			_ = cmd.Process.Signal(os.Interrupt)
		}
		_ = cmd.Wait()
	}
	tree.pipe.waitReaders(0)
}

func TestManyWriteMountedFiles(t *testing.T) {
	tree, dir := mounted(t)
	const writers, lines = 8, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range lines {
				f, err := os.OpenFile(filepath.Join(dir, "kprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := f.WriteString("p:a b\n"); err != nil {
					t.Error(err)
				}
				_ = f.Close()
			}
		})
	}
	wg.Wait()
	events, _, _ := tree.get()
	if n := strings.Count(events, "\n"); n != writers*lines {
		t.Errorf("%d lines", n)
	}
}

func TestFilesThatGoAreGone(t *testing.T) {
	tree, dir := mounted(t)
	name := filepath.Join(dir, "events/one/enable")
	if _, err := os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	tree.mu.Lock()
	tree.gone = true
	tree.mu.Unlock()
	if _, err := os.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// killedMount mounts the fake tree in another process, kills that, and returns where.

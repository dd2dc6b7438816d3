package door

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// mountedFolders mounts folders, of which none is there yet.
func mountedFolders(t *testing.T) (*Folders, string) {
	t.Helper()
	folders, dir := &Folders{}, t.TempDir()
	m, err := Mount(folders, dir, MountOptions{Source: "test", Log: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Done()
	})
	return folders, dir
}

// TestMountedFoldersAreAFileSystem, in which each Tree has its own files.
func TestMountedFoldersAreAFileSystem(t *testing.T) {
	folders, dir := mountedFolders(t)
	if err := fstest.TestFS(os.DirFS(dir)); err != nil {
		t.Error(err)
	}
	trees := map[string]*fakeTree{"7": newFakeTree(), "12": newFakeTree()}
	for name, tree := range trees {
		folders.Add(name, tree)
		tree.pipe.end()
	}
	sh(t, dir, "echo p:a b > 7/kprobe_events; echo p:c d > 12/kprobe_events")
	for name, want := range map[string]string{"7": "p:a b\n", "12": "p:c d\n"} {
		if events, _, writes := trees[name].get(); events != want || writes != 1 {
			t.Errorf("%s: %q after %d writes", name, events, writes)
		}
		if err := fstest.TestFS(without{os.DirFS(filepath.Join(dir, name)), "broken"}, "kprobe_events", "list", "events/one/enable"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for script, want := range map[string]string{
		"ls":                             "12\n7\n",
		"cat */kprobe_events":            "p:c d\np:a b\n",
		"stat -c '%A %s' . 7":            "drwxr-xr-x 0\ndr-xr-xr-x 0\n",
		"ls -id 7 12 | sort -u | wc -l":  "2\n",
		"mkdir 8 2>/dev/null || echo no": "no\n",
		"rmdir 7 2>/dev/null || echo no": "no\n",
		"echo 1 2>/dev/null > x || echo": "\n",
		"find . -name list | sort":       "./12/list\n./7/list\n",
		"touch . && cat 9 2>&1":          "cat: 9: No such file or directory\n",
	} {
		if out, _ := in(dir, script).CombinedOutput(); string(out) != want {
			t.Errorf("%s: %q", script, out)
		}
	}
}

// TestWhatIsOpenStaysWithItsFolder: what is open in a folder that has gone is not of another one that comes under its name.
func TestWhatIsOpenStaysWithItsFolder(t *testing.T) {
	folders, dir := mountedFolders(t)
	first, second := newFakeTree(), newFakeTree()
	first.set("p:a b\n", "0\n")
	remove := folders.Add("7", first)
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "7", name), flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	events, pipe, here, writes := open("kprobe_events", os.O_RDONLY), open("trace_pipe", os.O_RDONLY), open(".", os.O_RDONLY), open("kprobe_events", os.O_WRONLY|os.O_APPEND)
	first.pipe.say("the last\n")
	remove()
	remove()
	first.pipe.end()
	if _, err := os.Stat(filepath.Join(dir, "7")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	second.set("p:c d\n", "0\n")
	folders.Add("7", second)
	remove() // what has gone already
	if b, err := io.ReadAll(pipe); string(b) != "the last\n" || err != nil {
		t.Errorf("the pipe has %q, %v", b, err)
	}
	if b, err := io.ReadAll(events); string(b) != "p:a b\n" || err != nil {
		t.Errorf("the file has %q, %v", b, err)
	}
	buf := make([]byte, 9)
	_, again := events.ReadAt(buf, 0)
	_, written := writes.WriteString("p:x y\n")
	_, found := unix.Openat(int(here.Fd()), "list", unix.O_RDONLY, 0)
	_, listed := here.Stat()
	for what, err := range map[string]error{"read again": again, "write": written, "look up": found, "stat": listed} {
		if !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s: %v, want ESRCH", what, err)
		}
	}
	for tree, want := range map[*fakeTree]string{first: "p:a b\n", second: "p:c d\n"} {
		if events, _, n := tree.get(); events != want || n != 0 {
			t.Errorf("%q after %d writes, want %q", events, n, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "7/kprobe_events")); string(b) != "p:c d\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
}

package door

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

func TestTheTracedProcessCanOnlyRead(t *testing.T) {
	tree, dir := mounted(t)
	out := traced(t, dir, `cat list; (echo 1 > events/one/enable) 2>&1; (echo x >> kprobe_events) 2>&1`)
	want := "0000000000401000  k  main+0x0    \n"
	if !strings.HasPrefix(out, want) || strings.Count(out, "rror")+strings.Count(out, "deadlock") != 2 {
		t.Errorf("%q", out)
	}
	if _, _, writes := tree.get(); writes != 0 {
		t.Errorf("%d writes", writes)
	}
}

func TestOtherUsersSeeNothing(t *testing.T) {
	_, dir := mounted(t)
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	cmd := exec.Command("cat", filepath.Join(dir, "trace_pipe"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
		t.Errorf("%s %v", out, err)
	}
}

func TestAMountInUseIsTakenAway(t *testing.T) {
	tree, dir := newFakeTree(), t.TempDir()
	m, err := Mount(tree, dir, MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "list"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil {
		t.Errorf("%v %v", entries, err)
	}
	select {
	case <-m.Done():
		t.Error("the mount has ended with a file open")
	default:
	}
	_ = f.Close()
	<-m.Done()
}

func killedMount(t *testing.T, noShell bool) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"DOOR_TEST_MOUNT=" + dir}
	if !noShell {
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("mounted\n"))
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "list")); err != nil {
		t.Errorf("%q %v", b, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return dir
}

func TestTheMountOfAKilledProcessIsTakenAway(t *testing.T) {
	dir := killedMount(t, false)
	testprog.Await(t, "an end of the mount at "+dir, func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == 0
	})
}

func TestAMountThatAKilledProcessHasLeftIsReplaced(t *testing.T) {
	dir := killedMount(t, true)
	if _, err := os.ReadDir(dir); !errors.Is(err, unix.ENOTCONN) {
		t.Fatal("no stale mount:", err)
	}
	m, err := Mount(newFakeTree(), dir, MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "list")); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestChildrenDoNotInheritTheMount(t *testing.T) {
	_, dir := mounted(t)
	if out := sh(t, dir, "ls -l /proc/self/fd"); strings.Contains(out, "fuse") {
		t.Error(out)
	}
}

func TestUnmountingFromOutsideIsNoticed(t *testing.T) {
	m, err := Mount(newFakeTree(), t.TempDir(), MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("umount", m.Dir()).CombinedOutput(); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	<-m.Done()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhereNothingCanBeMountedTheErrorSaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, errno := range map[string]syscall.Errno{file: unix.ENOTDIR, file + "s": unix.ENOENT} {
		if _, err := Mount(newFakeTree(), dir, MountOptions{}); !errors.Is(err, errno) || !strings.HasPrefix(err.Error(), "cannot mount on "+dir+": ") {
			t.Error(err)
		}
	}
}

func TestASessionIsMountedThroughItsSocket(t *testing.T) {
	tree, s, c := opened(t)
	dir := t.TempDir()
	m, err := Mount(c, dir, MountOptions{Tracer: c.Tracer()})
	if err != nil {
		t.Fatal(err)
	}
	if c.Tracer() != os.Getpid() {
		t.Error(c.Tracer())
	}
	if out := sh(t, dir, "echo p:a b > kprobe_events; cat kprobe_events; ls events"); out != "p:a b\none\n" {
		t.Errorf("%q", out)
	}
	tree.set("", "1\n")
	if err := os.Truncate(filepath.Join(dir, "kprobe_events"), 0); err != nil {
		t.Error(err)
	}
	if _, err := os.OpenFile(filepath.Join(dir, "kprobe_events"), os.O_WRONLY|os.O_TRUNC, 0); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	f, err := os.Open(filepath.Join(dir, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	tree.pipe.say("last\n")
	tree.pipe.end()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	c.Wait(t.Context())
	if b, err := io.ReadAll(f); string(b) != "last\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	_ = f.Close()
	if _, err := os.ReadFile(filepath.Join(dir, "list")); err == nil {
		t.Error("the session has ended")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	<-m.Done()
}

// TestNoChildHasWhatTheMountIsMadeOf starts programs for as long as trees are mounted, and looks at what they have open.
func TestNoChildHasWhatTheMountIsMadeOf(t *testing.T) {
	parent := t.TempDir()
	ended := make(chan struct{})
	found := make(chan string, 1)
	var children sync.WaitGroup
	for range 2 {
		children.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				cmd := exec.Command("sh", "-c", "readlink /proc/$$/fd/*; :")
				cmd.Dir = "/"
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Contains(string(out), fuseDevice) || strings.Contains(string(out), parent) {
					select {
					case found <- strings.TrimSpace(string(out)):
					default:
					}
				}
			}
		})
	}
	for i := range 30 {
		dir := filepath.Join(parent, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		tree := newFakeTree()
		m, err := Mount(tree, dir, MountOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tree.pipe.end()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	close(ended)
	children.Wait()
	select {
	case files := <-found:
		t.Errorf("a program that was started meanwhile has %q", files)
	default:
	}
}

package patch

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// fileMemory is /proc/PID/mem, which writes read-only pages too.
type fileMemory struct{ *os.File }

func (m fileMemory) ReadMemory(at arch.Addr, p []byte) error {
	_, err := m.ReadAt(p, int64(at))
	return err
}

func (m fileMemory) WriteMemory(at arch.Addr, p []byte) error {
	_, err := m.WriteAt(p, int64(at))
	return err
}

// catText starts cat(1) and returns where its code lies and what the file says
// that it is.
func catText(t *testing.T) (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader, at arch.Addr, file []byte) {
	t.Helper()
	path, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(path)
	in, _ = cmd.StdinPipe()
	pipe, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	out = bufio.NewReader(pipe)
	echo(t, in, out) // it is now past execve
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	if file, err = text.Data(); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(maps), "\n") {
		var start, end, off uint64
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &start, &end, &perms, &off); n == 4 && perms == "r-xp" &&
			text.Offset >= off && text.Offset+text.Size <= off+end-start {
			return cmd, in, out, arch.Addr(start + text.Offset - off), file
		}
	}
	t.Fatalf("no mapping of .text in\n%s", maps)
	return
}

func echo(t *testing.T, in io.Writer, out *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(in, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if s, err := out.ReadString('\n'); s != "hello\n" {
		t.Fatalf("cat answers %q, %v", s, err)
	}
}

// stop freezes the process: patches of several bytes need that.
func stop(t *testing.T, pid int) {
	t.Helper()
	var status unix.WaitStatus
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("status %#x, %v", status, err)
	}
}

// TestALiveProcessHasItsCodeBack patches the code of a stopped process. The oracles
// are the file of the executable and the process, which has to go on as if nothing
// had happened.
func TestALiveProcessHasItsCodeBack(t *testing.T) {
	cmd, in, out, at, file := catText(t)
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem := fileMemory{f}
	stop(t, cmd.Process.Pid)
	show := func() []byte {
		b := make([]byte, len(file))
		if err := mem.ReadMemory(at, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(show(), file) {
		t.Fatal("the code differs from the file's before anything was patched")
	}

	x, want := newStill(mem, nil), bytes.Clone(file)
	for i := 0; i+5 < len(file); i += 23 { // crosses pages at changing offsets
		replacement := []byte{0xcc, 0xe9, 0xe9, 0xe9, 0xe9}[:1+i%5]
		if bytes.Equal(file[i:i+len(replacement)], replacement) {
			continue
		}
		if _, err := x.Install(at+arch.Addr(i), file[i:i+len(replacement)], replacement); err != nil {
			t.Fatal(err)
		}
		copy(want[i:], replacement)
	}
	view := make([]byte, len(file))
	if err := x.Original(at, view); err != nil || !bytes.Equal(view, file) {
		t.Errorf("the original view differs from the file: %v", err)
	}
	if !bytes.Equal(show(), want) {
		t.Error("the process does not show the patches")
	}
	if err := x.RestoreAll(nil); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(show(), file) {
		t.Error("the code differs from the file's afterwards")
	}
	if err := unix.Kill(cmd.Process.Pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	echo(t, in, out)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("cat ends with %v", err)
	}
}

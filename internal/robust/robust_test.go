package robust

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// node is of a word at the beginning of each 64 bytes.
func node(mem []byte, n int) *uintptr { return (*uintptr)(unsafe.Pointer(&mem[64*n-Usual])) }

func died(mem []byte, n int) bool { return binary.LittleEndian.Uint32(mem[64*n:])&Died != 0 }

const marked = "GOKPROBE_ROBUST"

// TestAKilledThreadsMarksAreSet, but for one that was removed, and whatever stands behind the marks.
func TestAKilledThreadsMarksAreSet(t *testing.T) {
	fd, err := unix.MemfdCreate("marks", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "marks")
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMarker$")
	cmd.Env = append(os.Environ(), marked+"=1")
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "marked\n" {
		t.Errorf("it says %q", line)
	}
	for n := range 4 {
		if died(mem, n) {
			t.Errorf("mark %d is set while the thread lives", n)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for n, want := range []bool{true, false, true, true} {
		if died(mem, n) != want {
			t.Errorf("mark %d is set: %v", n, !want)
		}
	}
}

// TestMarker is not a test but the process that is killed.
func TestMarker(t *testing.T) {
	if os.Getenv(marked) == "" {
		return
	}
	runtime.LockOSThread()
	mem, err := unix.Mmap(3, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	off, is := Offset()
	if !is || off != Usual {
		t.Fatal(off, is)
	}
	for n := range 4 {
		binary.LittleEndian.PutUint32(mem[64*n:], Thread())
		if !Link(node(mem, n)) {
			t.Error("no list")
		}
	}
	Unlink(node(mem, 1))
	runtime.GC()
	fmt.Println("marked")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed. Where all goroutines wait for each other the runtime ends the program
}

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// silentFS is a FUSE file system that answers the first request, and no other.
type silentFS struct{ fd int }

func mountSilent(t *testing.T, dir string) silentFS {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fd) // all that wait get an error
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	f := silentFS{fd}
	const fuseInit = 26 // include/uapi/linux/fuse.h
	in, code := f.next(t)
	if code != fuseInit {
		t.Fatalf("the first request is %d", code)
	}
	out := make([]byte, 80) // struct fuse_out_header, struct fuse_init_out
	binary.LittleEndian.PutUint32(out, 80)
	copy(out[8:16], in[8:16])                        // unique
	copy(out[16:24], in[40:48])                      // major, minor
	binary.LittleEndian.PutUint32(out[16+20:], 4096) // max_write
	if _, err := unix.Write(fd, out); err != nil {
		t.Fatal(err)
	}
	return f
}

// asked waits until there is a request, which is left there: whoever waits for one that was taken can't even be killed.
func (f silentFS) asked(t *testing.T) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
		switch {
		case err == unix.EINTR:
		case err != nil || n == 0:
			t.Fatalf("nobody asks: %v, %d", err, n)
		default:
			return
		}
	}
}

// next waits for a request, and tells its kind.
func (f silentFS) next(t *testing.T) (request []byte, code uint32) {
	t.Helper()
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(f.fd, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			t.Fatal(err)
		default:
			return b[:n], binary.LittleEndian.Uint32(b[4:])
		}
	}
}

// stripped is a copy of the fixture without symbols, which names a debug file that may lie in dir/.debug.
func stripped(t *testing.T, dir string) string {
	t.Helper()
	bin, debug := filepath.Join(dir, "stripped"), filepath.Join(dir, "stripped.debug")
	for _, args := range [][]string{
		{"--only-keep-debug", testprog.Build(t, "prey"), debug},
		{"--strip-all", "--remove-section=.note.gnu.build-id", "--add-gnu-debuglink=" + debug, testprog.Build(t, "prey"), bin},
	} {
		if out, err := exec.Command("objcopy", args...).CombinedOutput(); err != nil {
			t.Fatalf("objcopy: %v\n%s", err, out)
		}
	}
	if err := os.Remove(debug); err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestSignalsEndWhoWaitsForAFileOfSymbols: its file system has got the question, and answers it when the command has ended. So an end by the signal is one that did not
// wait. (Unless the command was so slow that it gave the file system up before the signal came.)
func TestSignalsEndWhoWaitsForAFileOfSymbols(t *testing.T) {
	dir := t.TempDir()
	scenario := filepath.Join(dir, "a.star")
	if err := os.WriteFile(scenario, []byte("kprobe(\"foo\")\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, stripped(t, dir))
	for _, args := range [][]string{
		{"attach", "-p", pidOf(p), "-sym", "foo"},
		{"attach", "-p", pidOf(p), "-sym", "f*", "-ret"},
		{"attach", "-p", pidOf(p), "-kprobe-event", "p:e foo"},
		{"inject", "-p", pidOf(p), "-sym", "foo", "-retval", "1"},
		{"script", "-p", pidOf(p), scenario},
	} {
		var r result
		for tries := 0; tries == 0 || tries < 300 && r.status == 4; tries++ {
			sub := filepath.Join(dir, ".debug")
			fs := mountSilent(t, sub)
			l := begin(t, args...)
			fs.asked(t)
			l.signal(syscall.SIGTERM)
			r = l.end()
			unix.Close(fs.fd)
			if err := unix.Unmount(sub, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(sub); err != nil {
				t.Fatal(err)
			}
		}
		if r.status != 0 || !strings.Contains(r.stderr, "interrupted before the probes were armed") {
			t.Errorf("%v: status %d, stderr %q", args, r.status, r.stderr)
		}
		p.CheckClean()
	}
	if last := p.Quit(); last != "right" {
		t.Errorf("the target says %q", last)
	}
}

// bulky writes a program with so many functions in 128 MiB of code, most of which is a hole in the file. It says that it is ready, and ends with its input.
func bulky(t *testing.T, functions int) string {
	t.Helper()
	const (
		base, size = 0x400000, 128 << 20
		headers    = 64 + 56
		entry      = base + headers
	)
	code := []byte{
		0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x48, 0x8d, 0x35, 0x23, 0, 0, 0, 0xba, 6, 0, 0, 0, 0x0f, 0x05, // write(1, "ready\n", 6)
		0x31, 0xc0, 0x31, 0xff, 0x48, 0x8d, 0x74, 0x24, 0x80, 0xba, 1, 0, 0, 0, 0x0f, 0x05, // read(0, sp - 128, 1)
		0x85, 0xc0, 0x7f, 0xec, // while it is above 0
		0xb8, 231, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, // exit_group(0)
	}
	code = append(code, 'x', 'x', 'x', 'x', 'x', 'x')[:len(code)]
	text := 24 - 7 // behind the lea, which ends at 17
	binary.LittleEndian.PutUint32(code[13:], uint32(len(code)-text))
	code = append(code, "ready\n"...)
	var syms, names bytes.Buffer
	names.WriteByte(0)
	le := binary.LittleEndian
	_ = binary.Write(&syms, le, elf.Sym64{})
	for i := range functions {
		at := uint64(base + 4096 + i*((size-8192)/functions))
		_ = binary.Write(&syms, le, elf.Sym64{Name: uint32(names.Len()), Info: uint8(elf.STB_GLOBAL)<<4 | uint8(elf.STT_FUNC), Shndx: 1, Value: at, Size: 64})
		fmt.Fprintf(&names, "f%d\x00", i)
	}
	shstr := "\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00"
	name := func(s string) uint32 { return uint32(strings.Index(shstr, s)) }
	at := uint64(size)
	place := func(n int) (off uint64) { off = at; at += uint64(n+7) &^ 7; return off }
	symOff, strOff, shstrOff := place(syms.Len()), place(names.Len()), place(len(shstr))
	sections := []elf.Section64{
		{},
		{Name: name(".text"), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: base, Size: size, Addralign: 16},
		{Name: name(".symtab"), Type: uint32(elf.SHT_SYMTAB), Off: symOff, Size: uint64(syms.Len()), Link: 3, Info: 1, Entsize: 24},
		{Name: name(".strtab"), Type: uint32(elf.SHT_STRTAB), Off: strOff, Size: uint64(names.Len())},
		{Name: name(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Off: shstrOff, Size: uint64(len(shstr))},
	}
	head := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: entry, Phoff: 64, Shoff: at,
		Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 4,
	}
	copy(head.Ident[:], "\x7fELF\x02\x01\x01")
	var first, last bytes.Buffer
	_ = binary.Write(&first, le, head)
	_ = binary.Write(&first, le, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 4096})
	first.Write(code)
	_ = binary.Write(&last, le, sections)
	bin := filepath.Join(t.TempDir(), "bulky")
	f, err := os.OpenFile(bin, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	for off, b := range map[uint64][]byte{0: first.Bytes(), symOff: syms.Bytes(), strOff: names.Bytes(), shstrOff: []byte(shstr), at: last.Bytes()} {
		if _, err := f.WriteAt(b, int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestSignalsEndPlacingInABulkyProgram: there is work for a long time.
func TestSignalsEndPlacingInABulkyProgram(t *testing.T) {
	bin := bulky(t, 400_000)
	cmd := exec.Command(bin)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the target says %q, %v", line, err)
	}
	pid := fmt.Sprint(cmd.Process.Pid)
	for _, args := range [][]string{
		{"attach", "-p", pid, "-sym", "f*", "-count"},
		{"attach", "-p", pid, "-sym", "f*", "-ret", "-count"},
		{"inject", "-p", pid, "-sym", "f*", "-retval", "1"},
	} {
		l := begin(t, args...)
		waitTraced(t, cmd.Process.Pid)
		l.signal(syscall.SIGTERM)
		if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "interrupted before the probes were armed") {
			t.Errorf("%v: status %d, stderr %q", args, r.status, r.stderr)
		}
		testprog.CheckClean(t, cmd.Process.Pid)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the target ended with %v", err)
	}
}

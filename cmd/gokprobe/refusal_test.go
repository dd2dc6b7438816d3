package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

const nobody = 65534

// refused checks one refusal: its status, one sentence with want, nothing on stdout.
func refused(t *testing.T, r result, status int, want ...string) {
	t.Helper()
	if r.status != status || r.stdout != "" {
		t.Errorf("status %d, not %d; stdout %q", r.status, status, r.stdout)
	}
	oneSentence(t, r)
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("stderr %q does not say %q", r.stderr, w)
		}
	}
}

func attachArgs(pid int) []string {
	return []string{"attach", "-p", strconv.Itoa(pid), "-sym", "foo", "-duration", "1m"}
}

func TestProcessesThatCannotBeAttachedToAreRefused(t *testing.T) {
	t.Run("no such process", func(t *testing.T) {
		const beyond = 1 << 22 // PID_MAX_LIMIT, proc(5)
		refused(t, gokprobe(t, attachArgs(beyond)...), 3, "there is no such process")
		refused(t, gokprobe(t, "recover", "-p", strconv.Itoa(beyond)), 3, "there is no such process")
	})
	t.Run("no process of the name", func(t *testing.T) {
		refused(t, gokprobe(t, "attach", "-p", "no-such-name", "-sym", "foo"), 3, "no process has this name")
	})
	t.Run("zombie", func(t *testing.T) {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		refused(t, gokprobe(t, attachArgs(cmd.Process.Pid)...), 3, "zombie")
	})
	t.Run("kernel thread", func(t *testing.T) {
		const kthreadd = 2
		if st, err := procfs.ReadStatus(kthreadd, 0); err != nil || !st.KernelThread {
			return // in a PID namespace of its own nobody sees kernel threads
		}
		refused(t, gokprobe(t, attachArgs(kthreadd)...), 3, "it is a kernel thread")
	})
	t.Run("already traced", func(t *testing.T) {
		p := prey(t)
		l := attachTo(t, p, "-sym", "foo")
		refused(t, gokprobe(t, attachArgs(p.PID())...), 3, fmt.Sprintf("already traced by process %d (gokprobe)", l.cmd.Process.Pid))
		p.Do("call foo 1", "ret 3")
		l.interrupt()
		p.Quit()
	})
	t.Run("32-bit", func(t *testing.T) {
		cmd := exec.Command(elf32(t))
		if err := cmd.Start(); err != nil {
			t.Logf("this kernel runs no 32-bit programs: %v", err)
			return
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		refused(t, gokprobe(t, attachArgs(cmd.Process.Pid)...), 3, "32-bit")
	})
}

// elf32 writes a 32-bit program that calls pause(2) for ever.
func elf32(t *testing.T) string {
	t.Helper()
	const base, header = 0x10000, 52 + 32
	code := []byte{0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7} // mov $29,%eax; int $0x80; jmp .-7
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x01\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, 2), 3), 1) // ET_EXEC, EM_386, EV_CURRENT
	for _, v := range []uint32{base + header, 52, 0, 0} {             // entry, program headers, sections, flags
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint16{52, 32, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	size := uint32(header + len(code))
	for _, v := range []uint32{1, 0, base, base, size, size, 5, 0x1000} { // PT_LOAD, r-x
		b = le.AppendUint32(b, v)
	}
	file := filepath.Join(t.TempDir(), "pause32")
	if err := os.WriteFile(file, append(b, code...), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOtherUsersProcessesAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	asNobody := func(t *testing.T, pid int) result {
		cmd := command(t, attachArgs(pid)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
		return finish(t, cmd)
	}
	t.Run("another user", func(t *testing.T) {
		p := prey(t)
		refused(t, asNobody(t, p.PID()), 3, "it belongs to user 0 and you are user 65534", "CAP_SYS_PTRACE")
		p.Quit()
	})
	t.Run("not dumpable", func(t *testing.T) {
		// A program that its user can't read is run, but not shown (would_dump in
		// fs/exec.c).
		text, err := os.ReadFile(testprog.Build(t, "prey"))
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("", "gokprobe-unreadable")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		secret := filepath.Join(dir, "secret")
		if err := os.WriteFile(secret, text, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		p := testprog.StartWith(t, testprog.Options{UID: nobody}, secret)
		refused(t, asNobody(t, p.PID()), 3, "it is not dumpable", "CAP_SYS_PTRACE")
		p.Quit()
	})
}

func TestProbesThatCannotBePlacedAreRefused(t *testing.T) {
	p := prey(t)
	data := addressOf(t, p, "text")
	before := testprog.TakeSnapshot(t, p.PID())
	for _, c := range []struct {
		name string
		spec []string
		want []string
	}{
		{"unknown symbol", []string{"-sym", "targt"}, []string{`"targt"`, "did you mean target"}},
		{"unknown module", []string{"-sym", "libnone:foo"}, []string{"libnone"}},
		{"a pattern that never waits", []string{"-sym", "libnone:f*"}, []string{"libnone"}},
		{"address in no mapping", []string{"-addr", "0x10"}, []string{"0x10", "no mapping"}},
		{"not on an instruction boundary", []string{"-sym", "target+1"}, []string{"target+1", "not the start of an instruction"}},
		{"a variable", []string{"-sym", "text"}, []string{"not a function"}},
		{"not executable", []string{"-addr", data}, []string{data}},
		{"one good and one bad", []string{"-sym", "foo", "-sym", "targt"}, []string{"targt"}},
		{"no line information", []string{"-sym", "prey.c:99999"}, []string{"prey.c:99999"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"attach", "-p", strconv.Itoa(p.PID())}, c.spec...)
			refused(t, gokprobe(t, args...), 4, append(c.want, "cannot place probe ")...)
			before.Compare(t, p.PID())
			p.CheckClean()
			p.Do("call foo 3", "ret 7")
		})
	}
	p.Quit()
}

func TestInstructionsThatCannotBeProbedAreRefused(t *testing.T) {
	for _, c := range []struct {
		prog, spec string
		want       []string
	}{
		{"rough", "table", []string{"not a function"}},
		{"rough", "seq_inside", []string{"restartable sequence (rseq)"}},
		{"rough", "narrow+4", []string{"operand-size prefix", "different processors"}},
		{"rough", "-addr=0xffffffffff600000", []string{"0xffffffffff600000"}},
		{"faults", "own_int3", []string{"a breakpoint of the program's own"}},
	} {
		t.Run(c.spec, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, c.prog))
			spec := []string{"-sym", c.spec}
			if addr, ok := strings.CutPrefix(c.spec, "-addr="); ok {
				spec = []string{"-addr", addr}
			}
			before := testprog.TakeSnapshot(t, p.PID())
			args := append([]string{"attach", "-p", strconv.Itoa(p.PID())}, spec...)
			refused(t, gokprobe(t, args...), 4, append(c.want, "cannot place probe ")...)
			before.Compare(t, p.PID())
			p.CheckClean()
			p.Quit()
		})
	}
}

func TestAnAmbiguousSymbolListsItsCandidates(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "cxx"))
	r := gokprobe(t, "attach", "-p", strconv.Itoa(p.PID()), "-sym", "shop::Counter::add")
	refused(t, r, 4, "names 2 different functions", "shop::Counter::add(long)", "shop::Counter::add(double)")
	p.CheckClean()
	p.Quit()
}

// addressOf is where list says that a symbol is.
func addressOf(t *testing.T, p *testprog.Prog, name string) string {
	t.Helper()
	r := gokprobe(t, "list", "-p", strconv.Itoa(p.PID()), "-format", "json", name)
	for line := range strings.Lines(r.stdout) {
		var found row
		if err := json.Unmarshal([]byte(line), &found); err != nil {
			t.Fatal(err)
		}
		if found.Name == name && strings.HasPrefix(found.Module, "prey") || strings.HasPrefix(name, found.Name) {
			return found.Addr
		}
	}
	t.Fatalf("list does not know %s: %s%s", name, r.stdout, r.stderr)
	return ""
}

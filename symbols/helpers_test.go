package symbols

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// procMem reads a process's memory through /proc/PID/mem.
type procMem struct{ f *os.File }

func (m procMem) ReadMemory(at arch.Addr, p []byte) error {
	if _, err := m.f.ReadAt(p, int64(at)); err != nil {
		return &arch.FaultError{Addr: at, Cause: err}
	}
	return nil
}

func (m procMem) WriteMemory(at arch.Addr, p []byte) error {
	return &arch.FaultError{Addr: at, Write: true, Cause: os.ErrPermission}
}

// run runs a tool and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	testprog.Need(t, name)
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

// build compiles testdata/src with its language's compiler.
func build(t testing.TB, src string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	src = filepath.Join("testdata", src)
	switch filepath.Ext(src) {
	case ".go":
		run(t, "go", append(append([]string{"build", "-o", out}, flags...), src)...)
	case ".rs":
		run(t, "rustc", append([]string{"-o", out, src}, flags...)...)
	case ".cc":
		run(t, "g++", append([]string{"-o", out, src}, flags...)...)
	default:
		run(t, "gcc", append([]string{"-o", out, src}, flags...)...)
	}
	return out
}

// target is a running fixture that has printed "ready".
type target struct {
	pid  int
	mem  procMem
	said map[string]arch.Addr // name: address, as the target printed it
	in   io.Writer
	out  *bufio.Scanner
}

func start(t testing.TB, path string, args ...string) *target {
	t.Helper()
	return startCmd(t, exec.Command(path, args...))
}

func startCmd(t testing.TB, cmd *exec.Cmd) *target {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	tg := &target{pid: cmd.Process.Pid, said: map[string]arch.Addr{}, in: in, out: bufio.NewScanner(out)}
	tg.listen(t, "ready")
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", tg.pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	tg.mem = procMem{f}
	return tg
}

// listen notes the addresses that the target prints until it says end.
func (tg *target) listen(t testing.TB, end string) {
	t.Helper()
	for tg.out.Scan() {
		name, value, _ := strings.Cut(tg.out.Text(), " ")
		if name == end {
			return
		}
		v, err := strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 64)
		if err != nil {
			t.Fatalf("the program printed %q", tg.out.Text())
		}
		tg.said[name] = arch.Addr(v)
	}
	t.Fatalf("the program ended before it said %s", end)
}

// tell sends a command and waits until the target says end.
func (tg *target) tell(t testing.TB, command, end string) {
	t.Helper()
	if _, err := fmt.Fprintln(tg.in, command); err != nil {
		t.Fatal(err)
	}
	tg.listen(t, end)
}

func (tg *target) open(t testing.TB, opts ...Option) *Table {
	t.Helper()
	tab, err := Open(tg.pid, tg.mem, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tab.Close() })
	return tab
}

// one resolves a specification that must name one place.
func one(t testing.TB, tab *Table, spec string) Location {
	t.Helper()
	locs, err := tab.Resolve(t.Context(), spec)
	if err != nil {
		t.Fatalf("Resolve(%q): %v", spec, err)
	}
	if len(locs) != 1 {
		t.Fatalf("Resolve(%q) = %v, want one location", spec, locs)
	}
	return locs[0]
}

func file(t testing.TB, path string, opts ...Option) *Table {
	t.Helper()
	tab, err := OpenFile(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tab.Close() })
	return tab
}

// nm lists the functions of a file by the oracle.
func nm(t testing.TB, args ...string) map[string]arch.Addr {
	t.Helper()
	out := map[string]arch.Addr{}
	for line := range strings.Lines(run(t, "nm", args...)) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.Contains("tTi", f[1]) {
			continue
		}
		v, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.Join(f[2:], " ")] = arch.Addr(v)
	}
	return out
}

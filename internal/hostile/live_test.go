package hostile

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// liveEnv has the test's program run the command that its arguments give, within limits, and say what that took.
const liveEnv = "GOKPROBE_HOSTILE_LIVE"

// patience ends tests that hang.
const patience = 10 * time.Minute

// runLimited runs a command until its own input ends, then interrupts it. It is a process of its own, since what a child has used counts
// the memory of who started it. Descriptor 3 gets the cost.
func runLimited(args []string) {
	hard := uint64(2 * mostTime() / time.Second)
	limits := map[int]unix.Rlimit{
		unix.RLIMIT_CPU:  {Cur: hard, Max: hard},
		unix.RLIMIT_DATA: {Cur: 4 << 30, Max: 4 << 30}, // what is allocated and not touched is not seen in what is resident
	}
	for what, l := range limits {
		if err := unix.Setrlimit(what, &l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = cmd.Process.Signal(os.Interrupt)
	}()
	_ = cmd.Wait() // how it ended is told below
	st := cmd.ProcessState
	used, _ := st.SysUsage().(*syscall.Rusage)
	fmt.Fprintf(os.NewFile(3, "report"), "%d %d %s\n", st.UserTime()+st.SystemTime(), used.Maxrss<<10, st)
}

// bounded is a running command.
type bounded struct {
	t      *testing.T
	what   string
	cmd    *exec.Cmd
	in     io.Closer
	out    bytes.Buffer
	err    *bufio.Reader
	said   strings.Builder // of err
	report *os.File
}

// limit runs the command under test within the limits of a file, and more.
func limit(t *testing.T, args ...string) *bounded {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	l := &bounded{t: t, what: strings.Join(args[1:], " "), cmd: exec.Command(exe, args...)}
	l.cmd.Env = append(os.Environ(), liveEnv+"=1")
	r, w, err := os.Pipe()
	must(t, err)
	l.cmd.ExtraFiles, l.report = []*os.File{w}, r
	l.cmd.Stdout = &l.out
	l.in, err = l.cmd.StdinPipe()
	must(t, err)
	errs, err := l.cmd.StderrPipe()
	must(t, err)
	l.err = bufio.NewReader(errs)
	must(t, l.cmd.Start())
	w.Close()
	hangs := time.AfterFunc(patience, func() { _ = l.cmd.Process.Kill() })
	t.Cleanup(func() { hangs.Stop(); l.in.Close(); r.Close() })
	return l
}

// armed waits until probes are; false if the command says something else and ends.
func (l *bounded) armed() bool {
	for {
		line, err := l.err.ReadString('\n')
		l.said.WriteString(line)
		if strings.HasPrefix(line, "armed: ") || err != nil {
			return err == nil
		}
	}
}

// end interrupts the command, and returns its status, when it has taken no more than it may and said why if it did not do what it was to do.
func (l *bounded) end(interrupt bool) (status string) {
	l.t.Helper()
	if interrupt {
		l.in.Close()
	}
	rest, err := io.ReadAll(l.err)
	must(l.t, err)
	l.said.Write(rest)
	report, err := io.ReadAll(l.report)
	must(l.t, err)
	must(l.t, l.cmd.Wait())
	var used time.Duration
	var memory uint64
	if _, err := fmt.Sscan(string(report), &used, &memory); err != nil {
		l.t.Fatalf("%s: %v in the report %q", l.what, err, report)
	}
	status = strings.TrimSpace(strings.SplitN(string(report), " ", 3)[2])
	said := l.said.String()
	switch {
	case strings.HasPrefix(status, "signal"), strings.Contains(said, "goroutine "), strings.Contains(said, "fatal error"), strings.Contains(said, "panic"):
		l.t.Errorf("%s: %s, %v and %d MB, says\n%s", l.what, status, used, memory/1_000_000, said[:min(len(said), 6000)])
	case used > mostTime():
		l.t.Errorf("%s took %v of processor time: %s", l.what, used, said)
	case memory > mostMemory:
		l.t.Errorf("%s took %d MB: %s", l.what, memory/1_000_000, said)
	}
	l.t.Logf("%s: %s, %v, %d MB", l.what, status, used.Round(time.Millisecond), memory/1_000_000)
	return status
}

// hits is how many of calls there were of visible in what attach has printed as JSON.
func (l *bounded) hits() (n uint64) {
	l.t.Helper()
	lines := bytes.Split(bytes.TrimSpace(l.out.Bytes()), []byte("\n"))
	var sum struct{ Probes []struct{ Hits uint64 } }
	if err := json.Unmarshal(lines[len(lines)-1], &sum); err != nil {
		l.t.Fatalf("%s: %v in %q", l.what, err, lines[len(lines)-1])
	}
	for _, p := range sum.Probes {
		n += p.Hits
	}
	return n
}

// glutton is a program that would have its tracer take memory or time without end.
type glutton struct {
	how     string
	bin     func(t *testing.T) string
	sym     string // that is probed, and not called; visible, which is, if empty
	refused string // what is said if it is not probed
}

// built is the program: visible lies behind all else of it.
func built(flags ...string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return testprog.Build(t, "glutton", append([]string{"-no-pie", "-Wl,--section-start=.huge=0x60000000"}, flags...)...)
	}
}

// grown is a copy of it with so much more behind the code of visible, of a pattern. Where the program's headers say so, it is part of that code.
func grown(t *testing.T, pattern []byte, size int, told bool) string {
	b, err := os.ReadFile(built()(t))
	must(t, err)
	f, err := elf.NewFile(bytes.NewReader(b))
	must(t, err)
	for i, p := range f.Progs {
		if told && p.Type == elf.PT_LOAD && p.Vaddr == 0x60000000 {
			at := int(le.Uint64(b[0x20:])) + 56*i
			n := uint64(len(b)+size) - p.Off
			le.PutUint64(b[at+32:], n)
			le.PutUint64(b[at+40:], n)
		}
	}
	name := filepath.Join(t.TempDir(), "glutton")
	must(t, os.WriteFile(name, append(b, bytes.Repeat(pattern, size/len(pattern))...), 0o700))
	return name
}

// sigprocmask is what makes a call of it, as code of C libraries does.
var sigprocmask = []byte("\xb8\x0e\x00\x00\x00\x0f\x05")

var gluttons = []glutton{
	{how: "plain", bin: built()},
	{how: "reserved", bin: built()},
	{how: "stretched", bin: built()},
	{how: "pieces", bin: built()},
	{how: "names", bin: built()},
	{how: "copies", bin: built(), refused: "names 4096 different functions"},
	{how: "argv", bin: built()},
	{how: "novdso", bin: built()},
	{how: "journals", bin: built()},
	{how: "groups", bin: built()},
	{how: "threads", bin: built()},
	{how: "links", bin: built()},
	{how: "dense", bin: func(t *testing.T) string { return grown(t, sigprocmask, 200<<20, false) }},
	{how: "dense", bin: func(t *testing.T) string { return grown(t, sigprocmask, 200<<20, true) }},
	{how: "endless", bin: built("-DENDLESS"), sym: "endless"},
	{how: "calling", bin: built("-DENDLESS"), sym: "calling"},
	{how: "sequences", bin: built("-DSEQUENCES")},
}

// A target may map, name and hold what it likes: its tracer neither fails nor hangs by it, and takes no more than it may; it does what it was asked
// to, or says why not; and the target lives on as it was.
func TestLiveTargetsHarmNobody(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gokprobe")
	run(t, ".", "go", "build", "-o", program, "github.com/gokprobe/gokprobe/cmd/gokprobe")
	for _, g := range gluttons {
		t.Run(g.how, func(t *testing.T) {
			t.Parallel()
			p := testprog.Start(t, g.bin(t), g.how, t.TempDir())
			pid, sym := strconv.Itoa(p.PID()), cmp.Or(g.sym, "visible")
			for _, args := range [][]string{{"list", "-p", pid, sym[:3] + "*"}, {"list", "-p", pid, sym + "+*"}, {"check", "-p", pid, "-attach"}, {"recover", "-p", pid}} {
				limit(t, append([]string{program}, args...)...).end(false)
			}
			for _, args := range [][]string{{"attach", "-count", "-sym", sym}, {"attach", "-sym", sym}, {"attach", "-ret", "-stack", "8", "-sym", sym}, {"inject", "-syscall", "getpgrp", "-errno", "EPERM", "-hold"}} {
				g.probe(t, p, limit(t, slices.Concat([]string{program}, args[:1], []string{"-p", pid, "-format", "json"}, args[1:])...))
			}
			p.CheckClean()
			if got := p.Quit(); got != "right" {
				t.Error(got)
			}
		})
	}
}

// probe has the target make calls while l probes it.
func (g *glutton) probe(t *testing.T, p *testprog.Prog, l *bounded) {
	armed := l.armed()
	const calls = 20
	if got := p.Do(fmt.Sprint("call ", calls), "sum"); got != fmt.Sprint("sum ", calls*calls) {
		t.Errorf("%s: it says %q", l.what, got)
	}
	want := uint64(calls)
	if g.sym != "" || strings.HasPrefix(l.what, "inject") {
		want = 0
	}
	status := l.end(true)
	switch said := l.said.String(); {
	case armed && (status != "exit status 0" || l.hits() != want):
		t.Errorf("%s: %s, %d hits of %d: %s", l.what, status, l.hits(), want, said)
	case !armed && (g.refused == "" || !strings.Contains(said, g.refused)):
		t.Errorf("%s: %s", l.what, said)
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// program is the command under test.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gokprobe-cmd")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run it too
		panic(err)
	}
	program = filepath.Join(dir, "gokprobe")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	return m.Run()
}

// patience ends tests that hang.
const patience = testprog.Patience

// result is what a finished run of the command left.
type result struct {
	stdout, stderr string
	status         int
}

func gokprobe(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...))
}

// lasting is gokprobe with a -duration in which it can attach, however slow the machine is.
func lasting(t *testing.T, args ...string) result {
	t.Helper()
	for d := 50 * time.Millisecond; ; d *= 4 {
		r := gokprobe(t, append([]string{args[0], "-duration", d.String()}, args[1:]...)...)
		if r.status != 3 || !strings.Contains(r.stderr, "-duration was over before the probes were armed") {
			return r
		}
	}
}

func command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // a program that outlives it may hold the pipes
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	cmd.Stderr = &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// live is a running attach or run.
type live struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	pipe   *os.File // read end of stdout
	stderr *bufio.Reader
	said   strings.Builder // stderr so far
}

// start runs the command and returns when it is armed.
func start(t *testing.T, args ...string) *live {
	t.Helper()
	l := begin(t, args...)
	l.waitFor("armed: ")
	return l
}

// begin runs the command.
func begin(t *testing.T, args ...string) *live {
	t.Helper()
	l := &live{t: t, cmd: command(t, args...)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l.cmd.Stdout, l.pipe, l.stdout = w, r, bufio.NewReader(r)
	e, err := l.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.stderr = bufio.NewReader(e)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		r.Close()
		if l.cmd.ProcessState == nil {
			_ = l.cmd.Process.Kill()
			_ = l.cmd.Wait()
		}
	})
	return l
}

// attachTo is start of an attach to p.
func attachTo(t *testing.T, p *testprog.Prog, args ...string) *live {
	t.Helper()
	return start(t, append([]string{"attach", "-p", pidOf(p)}, args...)...)
}

func pidOf(p *testprog.Prog) string { return strconv.Itoa(p.PID()) }

// waitFor reads stderr up to a line that starts with prefix, and returns that.
func (l *live) waitFor(prefix string) string {
	l.t.Helper()
	for {
		line, err := l.stderr.ReadString('\n')
		l.said.WriteString(line)
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSuffix(line, "\n")
		}
		if err != nil {
			l.t.Fatalf("no line %q on stderr, only:\n%s", prefix, l.said.String())
		}
	}
}

func (l *live) signal(sig syscall.Signal) {
	l.t.Helper()
	if err := l.cmd.Process.Signal(sig); err != nil {
		l.t.Fatal(err)
	}
}

// line reads one line of stdout.
func (l *live) line() string {
	l.t.Helper()
	s, err := l.stdout.ReadString('\n')
	if err != nil {
		l.t.Fatalf("stdout ends: %v", err)
	}
	return strings.TrimSuffix(s, "\n")
}

// end waits for the end of the command.
func (l *live) end() result {
	l.t.Helper()
	stdout, err := io.ReadAll(l.stdout)
	if err != nil && !strings.Contains(err.Error(), "file already closed") {
		l.t.Fatal(err)
	}
	rest, err := io.ReadAll(l.stderr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.said.Write(rest)
	_ = l.cmd.Wait()
	return result{string(stdout), l.said.String(), l.cmd.ProcessState.ExitCode()}
}

// interrupt ends the command as Ctrl-C does.
func (l *live) interrupt() result {
	l.t.Helper()
	l.signal(syscall.SIGINT)
	return l.end()
}

// hitLine and summaryLine are design §8's records. A key that is not there is an
// error.
type hitLine struct {
	Type   string          `json:"type"`
	Time   time.Time       `json:"time"`
	PID    int             `json:"pid"`
	TID    int             `json:"tid"`
	Comm   string          `json:"comm"`
	Probe  string          `json:"probe"`
	Kind   string          `json:"kind"`
	Addr   string          `json:"addr"`
	Symbol string          `json:"symbol"`
	Module string          `json:"module"`
	Args   json.RawMessage `json:"args"`
	Locals json.RawMessage `json:"locals"`

	Ret      *int64          `json:"ret"` // of a kretprobe
	Duration *int64          `json:"duration_ns"`
	Stops    int             `json:"stops"`
	Least    int64           `json:"duration_min_ns"`
	Results  json.RawMessage `json:"results"`

	Stack []struct {
		Addr, Symbol, Module, File string
		Line                       int
	} `json:"stack"`
}

type summaryLine struct {
	Type   string `json:"type"`
	PID    int    `json:"pid"`
	Probes []struct {
		Probe, Kind, Addr, Symbol, Mechanism, Reason string
		Hits, NMissed, Active                        uint64
		Misses                                       []loss
	} `json:"probes"`
	Lost        uint64 `json:"lost"`
	Losses      []loss `json:"losses"`
	Skipped     []loss `json:"skipped"`
	Unoptimized []loss `json:"unoptimized"`
}

// loss is how many were lost for one reason. Members with losses are there only if there are any.
type loss struct {
	Reason string
	N      uint64
}

// records parses -format json.
func records(t *testing.T, output string) (hits []hitLine, sum summaryLine) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	strictly(t, lines[len(lines)-1], &sum)
	for _, line := range lines[:len(lines)-1] {
		var h hitLine
		strictly(t, line, &h)
		hits = append(hits, h)
	}
	if sum.Type != "summary" {
		t.Errorf("the last line is of type %q", sum.Type)
	}
	return hits, sum
}

func strictly(t *testing.T, line string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
}

// oneSentence checks that stderr is one line of ours.
func oneSentence(t *testing.T, r result) {
	t.Helper()
	if !strings.HasPrefix(r.stderr, "gokprobe: ") || strings.Count(r.stderr, "\n") != 1 || !strings.HasSuffix(r.stderr, "\n") {
		t.Errorf("stderr is not one sentence: %q", r.stderr)
	}
}

func prey(t *testing.T) *testprog.Prog {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "prey"))
}

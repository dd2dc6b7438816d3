package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// scene is a log point that an editor sets, and what comes of it.
type scene struct {
	prog, file, at string // at is in the line of the file
	flags          []string
	Condition      string `json:"condition"`
	Text           string `json:"text"`
	does           []string
	says           []string

	PID    int    `json:"pid"`
	Source string `json:"source"`
	Line   int    `json:"line"`
}

var scenes = []scene{
	{prog: "gosrv", file: "gosrv/main.go", at: "func target(", Condition: "v > 100", Text: "target of {v}", does: []string{"call 5", "call 303", "call 7", "call 600"}, says: []string{"target of 303", "target of 600"}},
	{prog: "cxx", file: "cxx.cc", at: "if (v % 2)", flags: []string{"-O0"}, Condition: "v > 1 && v != 7", Text: "{v} in {comm}", does: []string{"call 1", "call 2", "call 7", "call 8"}, says: []string{"2 in cxx", "8 in cxx"}},
}

// driver is a client of gokprobe dap: it says "armed", then lines, and goes on when it is told to.
type driver struct {
	name  string
	start func(t *testing.T, s scene) (say io.Writer, hear *bufio.Reader)
}

// drivers are ours, and that of VS Code's library, which GOKPROBE_DAP_CLIENT=DIR has: run npm ci in a copy of testdata/dap there.
func drivers() []driver {
	all := []driver{{"go-dap", driveByGo}}
	if dir := os.Getenv("GOKPROBE_DAP_CLIENT"); dir != "" {
		all = append(all, driver{"vscode", func(t *testing.T, s scene) (io.Writer, *bufio.Reader) { return driveByNode(t, dir, program, s) }})
		all = append(all, driver{"vscode-tcp", func(t *testing.T, s scene) (io.Writer, *bufio.Reader) {
			_, port, err := net.SplitHostPort(listening(t, "127.0.0.1:0"))
			if err != nil {
				t.Fatal(err)
			}
			return driveByNode(t, dir, port, s)
		}})
	}
	return all
}

// TestEditorsDriveDAP: attach to a program of Go and one of C++, a log point with a condition, its lines, its removal, detach. The program is as before.
func TestEditorsDriveDAP(t *testing.T) {
	for _, d := range drivers() {
		for _, s := range scenes {
			t.Run(d.name+"-"+s.prog, func(t *testing.T) {
				p := testprog.Start(t, testprog.Build(t, s.prog, s.flags...))
				s.PID, s.Line, s.Source = p.PID(), lineOf(t, s.file, s.at), "/home/editor/"+s.file
				say, hear := d.start(t, s)
				heard(t, hear, "armed")
				for _, do := range s.does {
					p.Do(do, "ret")
				}
				for _, text := range s.says {
					heard(t, hear, fmt.Sprintf("%s:%d: %s", s.Source, s.Line, text))
				}
				fmt.Fprintln(say, "on")
				heard(t, hear, "removed")
				p.Do(s.does[1], "ret")
				fmt.Fprintln(say, "on")
				heard(t, hear, "detached")
				p.CheckClean()
				p.Do(s.does[1], "ret")
			})
		}
	}
}

func heard(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	line, err := r.ReadString('\n')
	if line = strings.TrimSuffix(line, "\n"); line != want {
		t.Fatalf("%q (%v), not %q", line, err, want)
	}
}

// lineOf is the number of a fixture's line.
func lineOf(t *testing.T, file, at string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../internal/testprog/testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), at)
	if !found {
		t.Fatalf("%s has no %q", file, at)
	}
	return strings.Count(before, "\n") + 1
}

// listening is the address at which gokprobe dap -listen listens, until the test ends.
func listening(t *testing.T, address string) string {
	t.Helper()
	l := begin(t, "dap", "-listen", address)
	t.Cleanup(func() {
		if r := l.interrupt(); r.status != 0 || r.stdout != "" {
			t.Errorf("-listen: status %d, stdout %q, stderr:\n%s", r.status, r.stdout, r.stderr)
		}
	})
	const says = "gokprobe: listening at "
	return strings.TrimPrefix(l.waitFor(says), says)
}

// driveByNode runs drive.js.
func driveByNode(t *testing.T, dir, command string, s scene) (io.Writer, *bufio.Reader) {
	arguments, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "testdata/dap/drive.js", command, string(arguments))
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
	cmd.Stderr = os.Stderr
	return pipesOf(t, cmd)
}

// pipesOf starts a command, and is its standard input and output.
func pipesOf(t *testing.T, cmd *exec.Cmd) (io.Writer, *bufio.Reader) {
	t.Helper()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", cmd.Path, err)
		}
	})
	return in, bufio.NewReader(out)
}

// driveByGo is drive.js in Go.
func driveByGo(t *testing.T, s scene) (io.Writer, *bufio.Reader) {
	in, out := pipesOf(t, command(t, "dap"))
	say, tell := io.Pipe()
	told, hear := io.Pipe()
	go func() {
		d := &goDriver{in: in, out: out, tell: hear}
		_ = hear.CloseWithError(d.drive(s, bufio.NewReader(say)))
	}()
	return tell, bufio.NewReader(told)
}

type goDriver struct {
	in   io.Writer
	out  *bufio.Reader
	tell io.Writer
	seq  int
}

func (d *goDriver) drive(s scene, on *bufio.Reader) error {
	points := fmt.Sprintf(`{"line": %d, "condition": %q, "logMessage": %q}`, s.Line, s.Condition, s.Text)
	set := func(list string) string {
		return fmt.Sprintf(`"setBreakpoints", "arguments": {"source": {"path": %q}, "breakpoints": [%s]}`, s.Source, list)
	}
	for _, step := range []struct{ request, says string }{
		{`"initialize", "arguments": {"adapterID": "gokprobe"}`, ""},
		{fmt.Sprintf(`"attach", "arguments": {"pid": %d}`, s.PID), ""},
		{set(points), ""}, {`"configurationDone"`, "armed"},
		{set(""), "removed"}, {`"disconnect"`, "detached"},
	} {
		if err := d.ask(step.request); err != nil {
			return err
		}
		if step.says == "" {
			continue
		}
		fmt.Fprintln(d.tell, step.says)
		if step.says == "armed" {
			if err := d.pass(len(s.says)); err != nil {
				return err
			}
		}
		if step.says != "detached" {
			if _, err := on.ReadString('\n'); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask sends a request and waits for its answer.
func (d *goDriver) ask(request string) error {
	d.seq++
	if err := protocol.WriteBaseMessage(d.in, fmt.Appendf(nil, `{"seq": %d, "type": "request", "command": %s}`, d.seq, request)); err != nil {
		return err
	}
	for {
		m, err := protocol.ReadProtocolMessage(d.out)
		if err != nil {
			return err
		}
		if r, ok := m.(protocol.ResponseMessage); ok {
			if !r.GetResponse().Success || r.GetResponse().RequestSeq != d.seq {
				return fmt.Errorf("%s: %+v", request, r.GetResponse())
			}
			return nil
		}
	}
}

// pass passes on n lines.
func (d *goDriver) pass(n int) error {
	for n > 0 {
		m, err := protocol.ReadProtocolMessage(d.out)
		if err != nil {
			return err
		}
		if o, ok := m.(*protocol.OutputEvent); ok && o.Body.Category == "stdout" {
			fmt.Fprintf(d.tell, "%s:%d: %s", o.Body.Source.Path, o.Body.Line, o.Body.Output)
			n--
		}
	}
	return nil
}

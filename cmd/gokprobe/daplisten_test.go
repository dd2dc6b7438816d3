package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// armedDAP is gokprobe dap with a log point in p.
func armedDAP(t *testing.T, p *testprog.Prog) (l *live, in io.WriteCloser) {
	t.Helper()
	l = &live{t: t, cmd: command(t, "dap")}
	in, err1 := l.cmd.StdinPipe()
	out, err2 := l.cmd.StdoutPipe()
	errs, err3 := l.cmd.StderrPipe()
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	l.stdout, l.stderr = bufio.NewReader(out), bufio.NewReader(errs)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &goDriver{in: in, out: l.stdout, tell: io.Discard}
	for _, request := range []string{fmt.Sprintf(`"attach", "arguments": {"process": "%d"}`, p.PID()), `"setFunctionBreakpoints", "arguments": {"breakpoints": [{"name": "work \"{n}\""}]}`} {
		if err := d.ask(request); err != nil {
			t.Fatal(err)
		}
	}
	return l, in
}

// TestDAPLetsGoHoweverItEnds: signals, a client that goes away, garbage. Nothing but the protocol is on standard output.
func TestDAPLetsGoHoweverItEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(l *live, in io.WriteCloser)
		status int
		says   string
	}{
		{"SIGTERM", func(l *live, _ io.WriteCloser) { l.signal(syscall.SIGTERM) }, 0, ""},
		{"SIGINT", func(l *live, _ io.WriteCloser) { l.signal(syscall.SIGINT) }, 0, ""},
		{"end of input", func(_ *live, in io.WriteCloser) { _ = in.Close() }, 1, "the client has gone"},
		{"garbage", func(_ *live, in io.WriteCloser) { fmt.Fprint(in, "stop it\n") }, 1, "not the Debug Adapter Protocol"},
	} {
		p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
		l, in := armedDAP(t, p)
		p.Do("work 1", "sum")
		c.end(l, in)
		r := l.end()
		if r.status != c.status || !strings.Contains(r.stderr, c.says) || c.says == "" && r.stderr != "" || strings.Count(r.stderr, "\n") > 1 {
			t.Errorf("%s: status %d, stderr %q", c.name, r.status, r.stderr)
		}
		if !strings.Contains(r.stdout, "detached from") || !strings.Contains(r.stdout, `"terminated"`) {
			t.Errorf("%s: the last messages are %q", c.name, r.stdout)
		}
		p.CheckClean()
		p.Do("work 2", "sum")
	}
}

// TestDAPListensToThisUserAlone.
func TestDAPListensToThisUserAlone(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "[::]:0", "example.org:1", "4711", "unix:"} {
		if r := gokprobe(t, "dap", "-listen", address); r.status != 2 || !strings.Contains(r.stderr, "unix:PATH") {
			t.Errorf("%s: status %d: %s", address, r.status, r.stderr)
		}
	}
	if r := gokprobe(t, "dap", "4711"); r.status != 2 {
		t.Errorf("an argument: status %d: %s", r.status, r.stderr)
	}
	name := filepath.Join(t.TempDir(), "dap")
	at := listening(t, "unix:"+name)
	if st, err := os.Stat(at); err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if r := gokprobe(t, "dap", "-listen", "unix:"+name); r.status != 2 || !strings.Contains(r.stderr, "remove it") {
		t.Errorf("the same again: status %d: %s", r.status, r.stderr)
	}
	for _, way := range [][2]string{{"unix", at}, {"tcp", listening(t, "localhost:0")}, {"tcp", listening(t, "[::1]:0")}} {
		conn, err := net.Dial(way[0], way[1])
		if err != nil {
			t.Fatal(err)
		}
		d := &goDriver{in: conn, out: bufio.NewReader(conn), tell: io.Discard}
		if err := d.ask(`"initialize", "arguments": {"adapterID": "x"}`); err != nil {
			t.Errorf("%v: %v", way, err)
		}
		_ = conn.Close()
	}
}

// TestDAPSendsOtherUsersAway.
func TestDAPSendsOtherUsersAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	l := begin(t, "dap", "-listen", "127.0.0.1:0")
	const says = "gokprobe: listening at 127.0.0.1:"
	port := strings.TrimPrefix(l.waitFor(says), says)
	const asks = `{"seq": 1, "type": "request", "command": "initialize"}`
	other := exec.Command("bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/$0 && printf 'Content-Length: %d\r\n\r\n%sbye\n' ${#1} "$1" >&3; cat <&3`, port, asks)
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	other.Dir = "/"
	if out, err := other.Output(); len(out) > 0 {
		t.Errorf("another user was told %q (%v)", out, err)
	}
	if r := l.interrupt(); !strings.Contains(r.stderr, "a client was sent away: it is of user 65534") {
		t.Errorf("stderr:\n%s", r.stderr)
	}
}

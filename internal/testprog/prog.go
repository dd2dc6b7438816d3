package testprog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait for something that comes if the code is right, however loaded the machine is.
// It only ends tests that hang.
const Patience = 20 * time.Minute

// Await waits until cond is true. what completes the complaint "there never was".
func Await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("there never was %s", what)
		}
	}
}

// Prog is a running fixture. It is the child of a small nanny process, not of the
// test: as with a real target, the test's process can only wait for it by tracing
// it. All methods but Signal are for the test's goroutine, and fail the test on
// errors.
type Prog struct {
	t      testing.TB
	name   string
	pid    int
	cmd    *exec.Cmd // the nanny
	stdin  *os.File
	stdout *os.File
	lines  *bufio.Reader // of stdout
	kept   []string      // lines that were read but not asked for
	leash  *os.File      // the nanny kills the fixture when this closes
	report *os.File      // what the nanny says
	word   *bufio.Reader // of report
	exit   *Exit
}

// Exit is how a process ended: with a status, or by a signal if Signal is not 0.
type Exit struct {
	Status int
	Signal syscall.Signal
}

// Options is what Start's programs may differ in. The zero value is the test's
// own user and environment.
type Options struct {
	Env []string // added to the test's environment
	UID int      // user and group to run as, when not 0; needs root
}

// Start runs the program bin and waits until it says "ready". A cleanup of t
// checks it as CheckClean does, if it still lives, and kills it.
func Start(t testing.TB, bin string, args ...string) *Prog {
	t.Helper()
	return StartWith(t, Options{}, bin, args...)
}

// StartWith is Start with options.
func StartWith(t testing.TB, o Options, bin string, args ...string) *Prog {
	t.Helper()
	p, err := start(t, o, Build(t, "nanny"), bin, args)
	if err != nil {
		t.Fatalf("testprog: start %s: %v", bin, err)
	}
	t.Cleanup(func() {
		if p.exit == nil && p.Alive() {
			p.CheckClean()
		}
		p.stop()
	})
	p.Expect("ready")
	return p
}

func start(t testing.TB, o Options, nanny, bin string, args []string) (*Prog, error) {
	var r, w [4]*os.File // stdin, stdout, leash, report
	for i := range r {
		var err error
		if r[i], w[i], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(nanny, append([]string{bin}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r[0], w[1], os.Stderr
	cmd.ExtraFiles = []*os.File{r[2], w[3]}
	cmd.Env = append(os.Environ(), o.Env...)
	if o.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.UID)}}
	}
	err := cmd.Start()
	for _, f := range []*os.File{r[0], w[1], r[2], w[3]} {
		f.Close()
	}
	if err != nil {
		return nil, err
	}
	p := &Prog{t: t, name: bin[strings.LastIndexByte(bin, '/')+1:], cmd: cmd, stdin: w[0], stdout: r[1], leash: w[2], report: r[3]}
	p.lines, p.word = bufio.NewReader(p.stdout), bufio.NewReader(p.report)
	line, err := readLine(p.report, p.word)
	if err == nil {
		_, err = fmt.Sscanf(line, "pid %d", &p.pid)
	}
	return p, err
}

// readLine reads a line of f through r, without its end.
func readLine(f *os.File, r *bufio.Reader) (string, error) {
	if err := f.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// PID is the fixture's process id.
func (p *Prog) PID() int { return p.pid }

// Send writes line and a newline to the fixture's standard input.
func (p *Prog) Send(line string) {
	p.t.Helper()
	if _, err := p.stdin.WriteString(line + "\n"); err != nil {
		p.t.Fatalf("%s: send %q: %v", p.name, line, err)
	}
}

// Expect returns the first line, of those not yet returned, that starts with
// prefix, and waits for it if need be. Lines before it stay for later calls.
func (p *Prog) Expect(prefix string) string {
	p.t.Helper()
	for i := 0; ; i++ {
		if i == len(p.kept) {
			line, err := readLine(p.stdout, p.lines)
			if err != nil {
				p.t.Fatalf("%s: wait for %q: %v after %q", p.name, prefix, p.describe(err), p.kept)
			}
			p.kept = append(p.kept, line)
		}
		if line := p.kept[i]; strings.HasPrefix(line, prefix) {
			p.kept = append(p.kept[:i], p.kept[i+1:]...)
			return line
		}
	}
}

// describe says how the fixture ended when its output did.
func (p *Prog) describe(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("it ended: %+v", p.Wait())
	}
	return err
}

// Line returns the next line, and waits for it if need be.
func (p *Prog) Line() string { p.t.Helper(); return p.Expect("") }

// Do sends a command and returns the first line from then on that starts with
// prefix.
func (p *Prog) Do(command, prefix string) string {
	p.t.Helper()
	p.Send(command)
	return p.Expect(prefix)
}

// Quit closes the fixture's standard input, waits for its end, and fails the test
// unless it exits with status 0. It returns the last line, the fixture's verdict.
func (p *Prog) Quit() string {
	p.t.Helper()
	p.stdin.Close()
	for {
		line, err := readLine(p.stdout, p.lines)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			p.t.Fatalf("%s: wait for the end: %v", p.name, err)
		}
		p.kept = append(p.kept, line)
	}
	last := ""
	if n := len(p.kept); n > 0 {
		last = p.kept[n-1]
	}
	if e := p.Wait(); e != (Exit{}) {
		p.t.Errorf("%s: ended with %+v; its last line: %q", p.name, e, last)
	}
	return last
}

// Wait waits for the fixture's end. It may be called again.
func (p *Prog) Wait() Exit {
	p.t.Helper()
	if p.exit != nil {
		return *p.exit
	}
	var e Exit
	line, err := readLine(p.report, p.word)
	if err == nil {
		_, err = fmt.Sscanf(line, "status %d signal %d", &e.Status, &e.Signal)
	}
	if err != nil {
		p.t.Fatalf("%s: wait for its exit: %v", p.name, err)
	}
	p.exit = &e
	return e
}

// Signal sends sig to the fixture. It may be called from any goroutine.
func (p *Prog) Signal(sig syscall.Signal) error {
	proc, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer proc.Release() // it holds a descriptor
	return proc.Signal(sig)
}

// Kill kills the fixture and waits for its end.
func (p *Prog) Kill() {
	p.t.Helper()
	if p.exit == nil {
		p.leash.Close()
		p.Wait()
	}
}

// Alive tells whether a thread of the fixture has not ended.
func (p *Prog) Alive() bool { return liveTask(p.pid) != 0 }

// stop ends everything, whatever state it is in, and reaps the nanny.
func (p *Prog) stop() {
	p.leash.Close()
	p.stdin.Close()
	_, _ = readLine(p.report, p.word) // until the nanny is done
	_ = p.cmd.Wait()                  // a tracer in this process may have reaped it
	p.stdout.Close()
	p.report.Close()
}

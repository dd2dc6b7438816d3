package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// target is a running target, seen from outside.
type target struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	tid int // the thread that makes the calls
}

// startTarget starts this executable as a target with the image in the file.
func startTarget(imagePath string) (*target, error) {
	cmd, err := self(roleTarget, imagePath)
	if err != nil {
		return nil, err
	}
	// No goroutine is made to run on another processor by a signal, which would be a stop.
	cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the target: %w", err)
	}
	t := &target{cmd: cmd, in: in, out: bufio.NewReader(out)}
	answer, err := t.answer()
	if err == nil {
		_, err = fmt.Sscanf(answer, "ready %d", &t.tid)
	}
	if err != nil {
		t.end()
		return nil, fmt.Errorf("the target did not start: %w", err)
	}
	return t, nil
}

func (t *target) pid() int { return t.cmd.Process.Pid }

func (t *target) end() {
	t.in.Close()
	_ = t.cmd.Wait()
}

// do sends a command and returns the answer.
func (t *target) do(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(t.in, format+"\n", args...); err != nil {
		return "", err
	}
	return t.answer()
}

func (t *target) answer() (string, error) {
	line, err := t.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading from the target: %w", err)
	}
	line = strings.TrimSpace(line)
	if text, ok := strings.CutPrefix(line, "error "); ok {
		return "", errors.New("the target: " + text)
	}
	return line, nil
}

// timed is do for commands that answer with nanoseconds.
func (t *target) timed(format string, args ...any) (ns float64, err error) {
	line, err := t.do(format, args...)
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(line, "ns %g", &ns); err != nil {
		return 0, fmt.Errorf("the target answered %q: %w", line, err)
	}
	return ns, nil
}

// self is this executable in one of its other roles. It dies with its parent's pipes.
func self(role string, args ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// child is a running sample.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startSample starts this executable as the sample and waits until it is ready.
func startSample(mode string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start the sample: %w", err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), sampleEnv+"="+mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches gokprobe alone
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the sample: %w", err)
	}
	c := &child{cmd, in, bufio.NewScanner(out)}
	if line, err := c.line(); err != nil || line != "ready" {
		c.kill()
		return nil, fmt.Errorf("the sample did not start: %q: %w", line, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// line reads one line of the sample's output.
func (c *child) line() (string, error) {
	if !c.out.Scan() {
		if err := c.out.Err(); err != nil {
			return "", err
		}
		return "", io.EOF
	}
	return c.out.Text(), nil
}

// serve asks a sample in mode "once" to serve one order, and waits for its answer.
func (c *child) serve() error {
	if _, err := io.WriteString(c.in, "serve\n"); err != nil {
		return err
	}
	_, err := c.line()
	return err
}

// finish ends the sample, hands its report to say, and returns an error if it was
// disturbed.
func (c *child) finish(say func(string)) error {
	c.in.Close()
	for {
		line, err := c.line()
		if err != nil {
			break
		}
		say(line)
	}
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the sample was disturbed: %w", err)
	}
	return nil
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed testdata/target.c
var targetSource []byte

func buildTarget(dir string) (string, error) {
	bin := filepath.Join(dir, "target")
	return bin, compile(targetSource, bin)
}

func compile(source []byte, bin string) error {
	if err := os.WriteFile(bin+".c", source, 0o644); err != nil {
		return err
	}
	out, err := exec.Command("gcc", "-O2", "-pthread", "-o", bin, bin+".c").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w: %s", filepath.Base(bin), err, out)
	}
	return nil
}

// target is a running target program.
type target struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startTarget(bin string) (*target, error) {
	cmd := exec.Command(bin)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &target{cmd, in, bufio.NewReader(out)}
	_, err = t.out.ReadString('\n')
	return t, err
}

func (t *target) pid() int { return t.cmd.Process.Pid }

func (t *target) end() {
	t.in.Close()
	_ = t.cmd.Wait()
}

// do sends a command and returns the answer.
func (t *target) do(format string, args ...any) (string, error) {
	if err := t.send(format, args...); err != nil {
		return "", err
	}
	return t.answer()
}

func (t *target) send(format string, args ...any) error {
	_, err := fmt.Fprintf(t.in, format+"\n", args...)
	return err
}

func (t *target) answer() (string, error) {
	line, err := t.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// timed is do for commands that answer with a time.
func (t *target) timed(format string, args ...any) (time.Duration, error) {
	line, err := t.do(format, args...)
	if err != nil {
		return 0, err
	}
	return parseTime(line)
}

func parseTime(line string) (time.Duration, error) {
	var ns int64
	if _, err := fmt.Sscanf(line, "ns %d", &ns); err != nil {
		return 0, fmt.Errorf("the target answered %q: %w", line, err)
	}
	return time.Duration(ns), nil
}

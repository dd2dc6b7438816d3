package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/kprobes"
)

func checkCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "can I attach here, and if not, why",
		UsageText: "gokprobe check [-p PID [-attach]]",
		Description: `Without -p: looks at this machine and at what you may do on it, and tries everything
for real on a child process. With -p: looks at process PID without stopping it, and
says what attach would say; -attach attaches and detaches as well.

Prints one line for each fact: "ok:" or "no:", the fact, and if it is in the way, what to
do about it. Exits with status 0 if attaching works, else 3.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "p", Usage: "look at process `PID`"},
			&cli.BoolFlag{Name: "attach", Usage: "attach to the process and detach at once"},
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return strayArgument(c, "")
			case c.Bool("attach") && !c.IsSet("p"):
				return usagef("-attach needs a process: -p PID")
			case !c.IsSet("p"):
				return checkHost(&facts{out: std.out})
			}
			of, err := findTarget(c.String("p"))
			if err != nil {
				return err
			}
			return checkProcess(&facts{out: std.out}, of, c.Bool("attach"))
		},
	}
}

// facts prints the lines of check.
type facts struct {
	out io.Writer
	err error // the first of writing them
}

func (f *facts) tell(good bool, format string, args ...any) {
	word := "ok"
	if !good {
		word = "no"
	}
	if _, err := fmt.Fprintf(f.out, "%s: %s\n", word, oneLine(fmt.Sprintf(format, args...))); f.err == nil {
		f.err = err
	}
}

// verdict prints the last line: good, or err. It returns err as an exit status alone,
// since its sentence is on stdout already, unless that took not all of them.
func (f *facts) verdict(err error, good string) error {
	if err == nil {
		if f.tell(true, "%s", good); f.err != nil && !brokenPipe(f.err) {
			return fmt.Errorf("cannot write to stdout: %w", fileError(f.err))
		}
		return nil
	}
	if f.tell(false, "%s", err); f.err != nil && !brokenPipe(f.err) {
		return attachError(err)
	}
	return statusError(exitAttach)
}

// trial probes a child of our own from attach to detach.
func (f *facts) trial() error {
	c, err := startSample("once")
	if err != nil {
		return err
	}
	defer c.kill()
	f.tellTextWritable(c.pid())
	s, err := kprobes.Attach(context.Background(), c.pid(), kprobes.Options{Log: func(string) {}})
	if err != nil {
		return err
	}
	defer s.Close()
	kp := &kprobes.Kprobe{SymbolName: "main.serveOrder"}
	if err := s.RegisterKprobe(kp); err != nil {
		return err
	}
	f.tellRegion(c.pid())
	if err := c.serve(); err != nil {
		return fmt.Errorf("the probed child does not answer: %w", err)
	}
	if n := kp.Hits(); n != 1 {
		return fmt.Errorf("a probe on a child was hit %d times instead of once", n)
	}
	if err := s.Close(); err != nil {
		return err
	}
	return c.finish(func(string) {})
}

// tellTextWritable tries whether code can be written as breakpoints are: through
// /proc/PID/mem. It writes the byte that is there already.
func (f *facts) tellTextWritable(pid int) {
	err := rewriteByte(pid)
	if err != nil {
		f.tell(false, "/proc/PID/mem of a child is not writable (%v), so code is written with ptrace word by word", fileError(err))
		return
	}
	f.tell(true, "/proc/PID/mem of a child is writable")
}

func rewriteByte(pid int) error {
	at, err := firstCode(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	var b [1]byte
	if _, err := mem.ReadAt(b[:], at); err != nil {
		return err
	}
	_, err = mem.WriteAt(b[:], at)
	return err
}

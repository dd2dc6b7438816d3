package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/dap"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

const dapDescription = `Speaks the Debug Adapter Protocol with an editor, on standard input and output: log points
and snapshots in a running process, which goes on meanwhile. Nothing else is written to
standard output.

The editor attaches with these arguments:

  pid             the process ID
  process         in its place, the name of the only process that has it
  rate            lines a second of each log point: 100 without it, 0 for all
  follow          true to probe the process's children as well
  snapshots       true to see stack and variables at other breakpoints' hits
  substitutePath  rules {"from": DIR, "to": DIR}: the editor's directory of
                  sources, and the one in which the program was built

A log message is the text of a log point, with expressions in braces as gokprobe log has
them; a condition is a -filter; a hit condition is N or ==N for that hit, >N, >=N, <N, <=N, or
%N for every Nth. A breakpoint at a function is any SPEC ("gokprobe help specs"), perhaps with a
text and a condition behind it, as gokprobe log takes it: handle%return "{ret}" if ret < 0.

The source file of a breakpoint is the one of the process whose path has most of its last
components. A line without code stands for the next one, up to 3 lines below.

A breakpoint without a log message would halt the program, and is refused. With
"snapshots": true it shows what was there at a hit: the stack, and the innermost
function's arguments, variables and registers. They are read while the thread is held for
that one hit, and it runs on at once. Hits are counted until the snapshot is dismissed
with "continue"; then the next one is shown. Steps and pauses are refused.

The end of the conversation, by whatever it ends, lets the process go. It is never killed.

With -listen, clients are served at a socket: unix:PATH, which only this user can open, or
a loopback address, where port 0 is one that is free. Several may be connected, to a process
each. Who connects gets what this user may do, so other users' programs are sent away.

Exit status: 0 done, 1 the client has gone without a disconnect request, or does not speak
the protocol, 2 wrong usage.

Examples:
  gokprobe dap
  gokprobe dap -listen unix:/run/user/1000/gokprobe.dap
  gokprobe dap -listen 127.0.0.1:4711`

func dapCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "dap",
		Usage:       "serve an editor's log points in a running process (Debug Adapter Protocol)",
		UsageText:   "gokprobe dap [-listen ADDRESS]",
		Description: dapDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "serve clients at unix:PATH or at a loopback `ADDRESS`, as 127.0.0.1:4711"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return strayArgument(c, "; the editor names the process")
			}
			in := watchInterrupts(std.warn)
			defer in.stop()
			if c.IsSet("listen") {
				return listenDAP(in.ctx, std, c.String("listen"))
			}
			return std.adapter().Serve(in.ctx, struct {
				io.Reader
				io.Writer
			}{std.in, std.out.file})
		},
	}
}

// adapter attaches to the processes that clients name.
func (s stdio) adapter() dap.Adapter { return dap.Adapter{Attach: s.attachDAP} }

func (s stdio) attachDAP(ctx context.Context, a dap.Target, tell func(string)) (dap.Session, error) {
	to, err := findTarget(a.Process)
	if err != nil {
		return nil, err
	}
	warn := func(text string) {
		s.warn("%s", text)
		tell(text)
	}
	starts, begun := startOnly(ctx)
	tr, err := trace.Attach(starts, to.pid, trace.With(kprobes.Options{Meant: to.id, Follow: a.Follow, Log: warn}), trace.Log(slog.New(warnings{warn})))
	begun()
	switch {
	case errors.Is(err, kprobes.ErrGivenUp):
		return nil, errors.New("the client has gone before the process was attached to")
	case err != nil:
		return nil, err
	}
	return dap.Hold(tr), nil
}

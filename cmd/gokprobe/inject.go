package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"
)

func injectCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "inject",
		Usage:       "make calls of a running process fail",
		UsageText:   "gokprobe inject (-p PID [-p PID …] | -p NAME -all | -x FILE | flags -- COMMAND [ARG …]) (-sym SPEC … | -syscall NAME …) [what] [which] [flags]",
		Description: injectDescription,
		Flags:       injectFlags(),
		Action: func(c *cli.Context) error {
			req, err := parseInject(c)
			if err != nil {
				return err
			}
			act, err := decideInject(&req, parseWhom(c), c.Args().Slice())
			if err != nil {
				return err
			}
			return act(std)
		},
	}
}

// decideInject returns the function that does the work: it attaches to the processes that who
// names, or starts command.
func decideInject(req *injectRequest, who whom, command []string) (act func(stdio) error, err error) {
	switch {
	case who.isGiven() && len(command) > 0:
		return nil, usagef("unexpected argument %q: name processes with -p or -x, or a command to start after --, not both", command[0])
	case who.isGiven():
		to, several, err := who.findTargets()
		switch {
		case err != nil:
			return nil, err
		case several:
			return func(std stdio) error { return attachWhole(std, to, who, req.request, req.newJoint) }, req.checkSeveral()
		}
		req.meant, req.who = to[0].id, who
		return func(std stdio) error { return attach(std, to[0].pid, req.request, req.newWork) }, req.checkThreads(to[0].pid)
	case len(command) > 0 && len(req.threads) > 0:
		return nil, usagef("-thread is for a process that runs, name it with -p: %s has no threads yet", command[0])
	case len(command) > 0:
		return func(std stdio) error { return run(std, command, req.request, req.newWork) }, nil
	}
	return nil, usagef("no process given, name it with -p PID, or a command to start after --")
}

// injectError gives an error of a rule its exit status: wrong usage, unless the error has
// another class.
func injectError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case exitStatus(err) == exitFailed:
		return &classed{errUsage, err}
	}
	return err
}

const injectDescription = `Attaches to processes, or starts COMMAND as gokprobe run does, and makes calls of the
functions SPEC, or system calls, fail on purpose: every call, or the ones that the flags choose.
Once all probes are in place, a line on stderr says "armed:". Each injected call is printed as one
line. The summary says how many calls there were, how many of them were eligible, and how often
each action was taken. gokprobe detaches with Ctrl-C, after -duration, at the end of the process,
and when no further call can be injected (-times, -fail-nth, -for). Then the process has its
original code again.

Actions on a call:
  -retval V        it returns V, and its body does not run: a number, NULL, true, 2.5, an enumerator
  -errno NAME      errno is set too; without -retval the call returns -1, or NULL if the
                   function returns a pointer. A system call returns -NAME
  -error ERR       a Go function returns an error: ENOENT, io.EOF, "text", or a Go expression;
                   its other results are zero, or -result NAME=V
  -after           the body runs first, then the other actions are applied
  -set REG=V       a register, or an argument ($arg2=0), is changed before the body runs
  -corrupt ADDR    a byte of memory is changed: '$arg2', '$arg2@7' (its byte 7), '$arg2@7^0x01'
  -poke ADDR=BYTES  memory is written: '$arg2=0x00ff', '$arg2="text"'
  -delay D         the thread goes on later: 50ms, 10ms..20ms; all others run
  -signal SIG      the thread gets a signal
If gokprobe knows all instructions that make system calls, it puts probes on these. Else it uses
ptrace, which stops every system call of the process. -syscall-by chooses between the two. ADDR,
and the V of -set, is a number or a fetch argument of the kernel's, as in gokprobe attach -arg.

The flags that choose calls apply in this order. -if comes first; calls that do not meet it are
not counted. Then the order is that of the kernel's fault injection
(Documentation/fault-injection): -fail-nth, the task and stack filters, -space, -when, -interval,
-probability, -rate. -times ends the injection. Numbers count the calls of all SPECs together,
also of functions in libraries that are loaded later: a SPEC in such a library waits for it, and
with -follow one that only a program has that is executed later ("gokprobe help specs").
If only numbers and chance decide, the process itself decides, and calls that pass do not stop.
The same -seed chooses the same calls. The options of the kernel's failcmd.sh work too.

One command can inject into several processes. -p may be given again. -p NAME -all takes all
processes of that name. -x FILE takes every process that runs or maps FILE, an executable or a
library, also processes that start later. Each process counts by itself, and so does each child
with -follow: -fail-nth 3 is the third call of each, and -space, -when, -interval and
-probability choose the same calls in each. -times, -rate and -for hold for all processes
together; the time of -for begins with the first process. The session ends when no call of any
process can be injected. The summary has sums and a row for each process. If a process can't be
injected into that was found by its name or FILE, a warning says so and it is left out; if -p
names it by its number, that is an error. With -mount DIR, DIR has a folder for each, named by
its PID. -thread and the flags whose values are addresses, such as -require-start, are for one
process.

Exit status: 0 done, 1 failed while running, 2 wrong usage, 3 cannot attach, 4 cannot place a
probe; with COMMAND, that of COMMAND.

Examples:
  gokprobe inject -p 4711 -sym libc.so.6:open64 -errno ENOENT \
      -if 'path ~ "*.conf"' -arg 'path=+0($arg1):string'
  gokprobe inject -p redis-server -sym libc.so.6:write -errno EAGAIN \
      -probability 1% -seed 7
  gokprobe inject -p 4711 -sym malloc -errno ENOMEM -when 1000+ -times 1
  gokprobe inject -p 4711 -sym libc.so.6:fsync -delay 10ms..200ms
  gokprobe inject -p 4711 -sym libc.so.6:read -after \
      -corrupt '$arg2@0' -interval 100
  gokprobe inject -p 4711 -sym os.OpenFile -interval 10 \
      -error '&fs.PathError{Op: "open", Path: name, Err: ENOENT}'
  gokprobe inject -p 4711 -sym parse_header -retval 0 -dry-run -duration 10s
  gokprobe inject -p 4711 -syscall openat -errno EMFILE \
      -if 'path ~ "/etc/*"' -arg 'path=+0($arg2):string'
  gokprobe inject -p postgres -all -sym libc.so.6:fsync -errno EIO -times 1
  gokprobe inject -x /usr/lib/libssl.so.3 -sym SSL_read -retval -1 -when 9
  gokprobe inject -p 4711 -syscall %network -errno ECONNRESET -probability 1%
  gokprobe inject -sym libc.so.6:write -errno ENOSPC -fail-nth 3 \
      -- ./backup /tmp/out`

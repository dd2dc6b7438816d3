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

// decideInject tells from the request what is done: the attach to the processes that are meant, or the start of command.
func decideInject(req *injectRequest, who whom, command []string) (act func(stdio) error, err error) {
	switch {
	case who.given() && len(command) > 0:
		return nil, usagef("unexpected argument %q: give processes by -p or -x, or a program to start behind --, not both", command[0])
	case who.given():
		to, several, err := who.findTargets()
		switch {
		case err != nil:
			return nil, err
		case several:
			return func(std stdio) error { return attachWhole(std, to, who.file, req.request, req.newJoint) }, req.checkSeveral()
		}
		req.meant = to[0].id
		return func(std stdio) error { return attach(std, to[0].pid, req.request, req.newWork) }, req.checkThreads(to[0].pid)
	case len(command) > 0 && len(req.threads) > 0:
		return nil, usagef("-thread is for a process that runs, name it with -p: %s has no threads yet", command[0])
	case len(command) > 0:
		return func(std stdio) error { return run(std, command, req.request, req.newWork) }, nil
	}
	return nil, usagef("no process given, name it with -p PID, or a program to start behind --")
}

// injectError gives what is wrong with a rule its exit status.
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
functions SPEC, or of system calls, fail on purpose: each, or those that the flags choose.
Once everything is in place one line on stderr says so ("armed: …"). Each injected call is
one line; the summary says how many calls there were, how many could have been injected and
what was done how often. When no call can be injected any more (-times, -fail-nth, -for),
and with Ctrl-C, -duration and the end of the process, gokprobe detaches: the process is
as it was.

What is done to a call:
  -retval V        it returns V, and its body does not run: a number, NULL, true, 2.5, an enumerator
  -errno NAME      errno is set too; without -retval the call returns what functions of its
                   type do then: -1, or NULL for a pointer. For a system call: -NAME
  -error ERR       a Go function returns an error: ENOENT, io.EOF, "text", or a Go expression;
                   its other results are zero, or -result NAME=V
  -after           the body runs first, then the rest is done to its result
  -set REG=V       a register, or an argument ($arg2=0), is changed before the body runs
  -corrupt ADDR    a byte of memory is changed: '$arg2', '$arg2@7' (its byte 7), '$arg2@7^0x01'
  -poke ADDR=BYTES  memory is written: '$arg2=0x00ff', '$arg2="text"'
  -delay D         the thread goes on later: 50ms, 10ms..20ms; all others run
  -signal SIG      the thread gets a signal
System calls are seen by probes at the instructions that make them, if all of those can be known,
else by ptrace, which stops every system call of the process (-syscall-by says which).
What is set, and ADDR, is a number or a fetch argument of the kernel's, as in gokprobe attach -arg.

Which calls: -if first; what it lets pass is counted and decided in the order of the kernel's
fault injection (Documentation/fault-injection): -fail-nth, the task and stack filters, -space,
-when, -interval, -probability, -rate; -times ends it. Numbers count the calls of all SPECs
together. Where numbers and chance decide, the process itself does, and calls that pass do not
stop. The same -seed chooses the same calls. The options of the kernel's failcmd.sh work too.

Several processes are injected into alike: -p may be given again, -p NAME -all takes all
processes of that name, and -x FILE every process that runs or maps FILE, a program or a
library, also those that come later. Each process counts by itself, as followed children do:
-fail-nth 3 is the third call of each, and -space, -when, -interval and -probability choose the
same calls in each. -times and -rate are for all together, exactly, and so is -for, which
begins with the first process. The session ends when no call of any process can be injected any
more. The summary tells of all together and of each. A process that was found by its name or
file and can't be injected into is told of and left out; one that -p names by its number is an
error. -thread, -mount and the addresses of -require-start and the like are for one process.

Exit status: 0 done, 1 failed while running, 2 wrong usage, 3 cannot attach, 4 cannot place a
probe; with COMMAND, that of the program.

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

package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/kprobes"
)

const attachDescription = `Attaches to process PID (or to the only process of that name), puts a probe at
each SPEC and prints one line for every hit. Once all probes are in place, one line
on stderr says so: "armed: 2 probes in 4711 (redis-server)". Ctrl-C, -duration,
-max-hits and the end of the process all end with a clean detach and a summary on
stderr (with -format json: the last line of the output). With -count there are no lines
of hits, and the counts are on stdout. Attaching and arming, too, end with Ctrl-C, and
within a second after -duration, even if a thread of the process can't be stopped.
If attaching, arming or removing takes longer than half a second and stderr is a terminal,
a line there shows how far it has come ("arming: 2048 of 6800 places"), and goes when it is over.

A single SPEC that can't be probed is an error, and nothing is left armed. A pattern skips
places that can't be probed, and a warning counts them. A SPEC in a library that is not
loaded yet (libplug.so:foo, 'libplug.so:pl*') waits for the library. When a library is
unloaded its probes are gone; "gokprobe help specs" says which ones come back with it.

Hits count executions of the probed instruction: a Go function whose stack grows is
entered again after runtime.morestack, so its hits may exceed its calls.

With -ret, or for SPEC%return, a line comes when the function has returned. It shows the
function's result, typed by debug information (else the integer in rax), and how long the
call took. There, -args prints the arguments as they were at the entry, and -stack the stack
of the caller. Calls that do not return, or that exceed -maxactive at once, are counted as missed.
Such a SPEC must be a function: no offset, no +*.

-arg and -filter use the language of the kernel's kprobe_events and filter files
(Documentation/trace/kprobetrace.rst, events.rst). A value is a register (%di), $arg1, $stack0,
$retval, $comm, memory (@variable, +8(%di), +0(+16($arg1))), or where there is debug information
a parameter (path:string, req->len; strings of C, C++, Go and Rust). Types are u8 … x64, char,
string, symbol, b4@4/32, and arrays s32[4]. "gokprobe help expressions" explains them. With
-args, -filter may compare parameters too. Hits that do not meet it are not counted.

A slow reader never slows the process: records that it does not read in time are
dropped and counted as lost, as are messages on stderr. If it closes the pipe (| head),
gokprobe detaches and exits with status 0.

Several processes can be probed alike; they are counted together and each by itself. -p may be
given again. -p NAME -all takes all processes of that name. -x FILE takes every process that
runs or maps FILE, an executable or a library, also processes that start later. These are
probed from a moment after they have mapped FILE; run and -follow see everything from the
first instruction. If a process can't be probed that was found by its name or FILE, a warning
says so and it is left out; if -p names it by its number, that is an error.

With -hold no probes are needed: gokprobe debugfs adds and removes some while the session
lasts, through files like the kernel's. With -mount DIR, echo does the same. Where there may be
several processes DIR has a folder for each, named by its PID, as long as it is probed.

Exit status: 0 done, 1 failed while running, 2 wrong usage, 3 cannot attach,
4 cannot place a probe.

Examples:
  gokprobe attach -p 4711 -sym processCommand
  gokprobe attach -p redis-server -sym call -args -max-hits 10
  gokprobe attach -p 4711 -sym main.parse -ret -args
  gokprobe attach -p 4711 -sym foo -sym foo%return -format json
  gokprobe attach -p 4711 -sym handle -args \
      -filter 'count > 100 && path ~ "*.html"'
  gokprobe attach -p 4711 -sym open -arg 'path=+0($arg1):string' \
      -filter 'path ~ "/etc/*"'
  gokprobe attach -p 4711 -sym read -ret -arg 'fd=$arg1:s32' \
      -filter 'ret < 0 || duration > 1ms'
  gokprobe attach -p 4711 -sym 'libc.so.6:mem*' -count -duration 5s
  gokprobe attach -p 4711 -sym main.handle -stack 8 -format json -o hits.jsonl
  gokprobe attach -p 4711 -sym 'parse+*' -count
  gokprobe attach -p postgres -all -sym exec_simple_query -args
  gokprobe attach -x /usr/lib/libssl.so.3 -sym SSL_read -count
  gokprobe attach -p 4711 -hold -mount /mnt
  gokprobe attach -x /usr/bin/redis-server -hold -mount /mnt`

func attachCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "attach",
		Usage:       "probe a running process and print each hit",
		UsageText:   "gokprobe attach (-p PID [-p PID …] | -p NAME -all | -x FILE) (-sym SPEC [-sym SPEC …] | -hold) [flags]",
		Description: attachDescription,
		Flags:       append(whomFlags("attach to"), probeFlags()...),
		Action: func(c *cli.Context) error {
			if c.Args().Present() { // before all else: flags behind it have not been read
				return strayArgument(c, "; to start a command under probes use gokprobe run")
			}
			req, err := parseRequest(c)
			if err != nil {
				return err
			}
			return attachAll(std, parseWhom(c), req)
		},
	}
}

// attachAll attaches to the processes that who names, and does what the request asks until it ends.
func attachAll(std stdio, who whom, req request) error {
	to, several, err := who.findTargets()
	if err != nil {
		return err
	}
	if several {
		return attachWhole(std, to, who, req, newProbing)
	}
	req.meant, req.who = to[0].id, who
	return attach(std, to[0].pid, req, newWork)
}

// attach attaches to one process and does the work that newWork makes, until it ends.
// It is the attach command after its flags have been read.
func attach(std stdio, pid int, req request, newWork workMaker) error {
	output, color, err := req.openOutput(std)
	if err != nil {
		return err
	}
	in := watchInterrupts(std.warn)
	defer in.stop()
	std.fetchFor(in.ctx, pid, req)
	ctx, armed := req.arming(in.ctx)
	defer armed()
	req.progress = std.progress("attaching to %d", pid)
	defer req.progress.end()
	starts, begun := startOnly(ctx)
	sess, err := kprobes.Attach(starts, pid, req.options(std))
	begun()
	switch {
	case errors.Is(err, kprobes.ErrGivenUp):
		return std.unarmed(ctx, pid, err)
	case err != nil:
		return attachError(err)
	}
	req.who.warnForked(std, pid)
	w := newWork(std, req, sess, output, color)
	if err := w.place(ctx); err != nil {
		return w.abort(ctx, err)
	}
	armed()
	w.announce()
	w.wait(in.ctx)
	return w.finish(in.again)
}

// attachWhole attaches to several processes and does the work that newJoint makes on
// all of them. If who names a file, processes that map it later are attached to as well.
func attachWhole(std stdio, to []target, who whom, req request, newJoint jointMaker) error {
	var file *mapWatch
	if who.file != "" {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var err error
		if file, err = newMapWatch(ctx, who.file); err != nil {
			return err
		}
		to = append(to, file.others(to)...)
	}
	return attachSeveral(std, to, who, file, req, newJoint)
}

// abort detaches after err has kept the probes from being placed. If ctx had ended because
// the user wanted so, that is not a failure.
func (w *work) abort(ctx context.Context, err error) error {
	closeErr := errors.Join(w.files.close(), w.close())
	_, _ = w.drain(nil)
	if w.output != w.std.out.file {
		_ = w.output.Close()
	}
	return errors.Join(w.std.unarmed(ctx, w.sess.PID(), err), closeErr)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

func runCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "start a command under probes",
		UsageText: "gokprobe run [flags] (-sym SPEC | -script SCENARIO.star) -- COMMAND [ARG …]",
		Description: `Starts COMMAND, and places the probes when its libraries are loaded and neither their
constructors nor its own code have run; then lets it run. What the dynamic linker did until then is
not seen, nor how it had libraries choose implementations (IFUNC). A warning counts the probes in
the dynamic linker. COMMAND keeps stdin, stdout and stderr; hits go to stdout too, unless -o names
a file. After -max-hits or -duration the probes are removed and COMMAND runs on.

gokprobe exits with the status of COMMAND, or 128 plus the number of the signal that
killed it, also if it ends before it is loaded, as where a library is missing. Ctrl-C reaches
COMMAND too, which decides whether to end; SIGTERM, SIGHUP and SIGABRT are passed on to it. If it
can't be started or probed, none of its code runs and the status is 2 (no such COMMAND), 3 or 4.

With -script, a scenario places the probes (gokprobe script -h). The status is then 1 if the
scenario has failed, else the status of COMMAND.

Examples:
  gokprobe run -sym malloc -count -- ls -l
  gokprobe run -sym libc.so.6:write -ret -stack 3 -- ls -l
  gokprobe run -sym 'main.*' -args -o hits.txt -- ./server -addr :8080
  gokprobe run -sym libc.so.6:write -stack 5 -format json -o w.jsonl -- date
  gokprobe run -script full-disk.star -report tap:- -- ./prog
  gokprobe run -kprobe-event 'p:open,libc.so.6:open64,path=+0($arg1):string' \
      -mount /mnt -- ./server`,
		Flags: append(append(probeFlags(),
			&cli.StringFlag{Name: "script", Usage: "run the scenario in `FILE` on COMMAND; only -duration, -format, -o, -no-boost, -no-optimize and -follow can be added, and:"},
			&cli.StringSliceFlag{Name: "script-arg", Usage: "add `ARG` to the scenario's args; repeatable"}), scriptFlags()...),
		Action: func(c *cli.Context) error {
			if c.IsSet("script") {
				return runScenario(std, c)
			}
			for _, f := range []string{"script-arg", "seed", "steps", "report", "injected"} {
				if c.IsSet(f) {
					return usagef("-%s is about scenarios, name one with -script", f)
				}
			}
			req, err := parseRequest(c)
			if err != nil {
				return err
			}
			command := c.Args().Slice()
			if len(command) == 0 {
				return usagef("no command given, name it after --: gokprobe run -sym SPEC -- COMMAND; for a running process use gokprobe attach -p PID")
			}
			return run(std, command, req, newWork)
		},
	}
}

// run starts command and does the work that newWork makes, until the command has ended. It
// is the run command after its flags have been read.
func run(std stdio, command []string, req request, newWork workMaker) error {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return usagef("cannot run %s: %w", command[0], lookError(err))
	}
	output, color, err := req.openOutput(std)
	if err != nil {
		return err
	}
	relay := newRelay()
	defer relay.stop()
	std.fetchOf(relay.ctx, program, req)
	req.progress = std.progress("starting %s", filepath.Base(command[0]))
	defer req.progress.end()
	starts, begun := startOnly(relay.ctx)
	sess, err := kprobes.Launch(starts, kprobes.Command{
		Path: program, Args: command, Env: os.Environ(),
		Files: []*os.File{std.in, std.out.file, os.Stderr},
	}, req.options(std))
	begun()
	if err != nil {
		return notLaunched(std, command[0], fmt.Errorf("cannot run %s under probes: %w", command[0], err))
	}
	w := newWork(std, req, sess, output, color)
	if err := relay.whileStarting(w.place, sess); err != nil {
		_ = sess.Signal(syscall.SIGKILL) // none of its code has run
		return w.abort(context.Background(), err)
	}
	w.tellUnseen()
	w.announce()
	std.flush()
	if err := sess.Start(); err != nil {
		return w.abort(context.Background(), err)
	}
	w.wait(relay.enough)
	w.quietExit = true // our own exit status says how it ended
	relay.finish(sess)
	if err := w.finish(relay.again); err != nil {
		std.warn("%s", sentence(err))
	}
	return programStatus(sess)
}

// notLaunched is what ends gokprobe when err has kept the command from being launched: its own status if it has ended by itself.
func notLaunched(std stdio, command string, err error) error {
	var ended *kprobes.EndedError
	if !errors.As(err, &ended) {
		return attachError(err)
	}
	std.warn("no probe was placed in %s: %v", command, ended)
	return statusError(ended.Code)
}

// tellUnseen says of which probes the first hits are over: the dynamic linker has run already.
func (w *work) tellUnseen() {
	in := 0
	for _, at := range w.stats().Places {
		if at.Waiting {
			continue
		}
		if where, ok := w.sess.Symbols().Lookup(at.Addr); ok && where.Symbol.Module != nil && where.Symbol.Module.Kind == symbols.KindInterpreter && !isMusl(where.Symbol.Module) {
			in++
		}
	}
	if in > 0 {
		w.std.warn("%s of the dynamic linker, which has loaded the libraries already: what it did until now is not seen", escape.Count(in, "probe"))
	}
}

// isMusl tells of a dynamic linker that it is the C library as well, of which little has run.
func isMusl(m *symbols.Module) bool { return strings.HasPrefix(filepath.Base(m.Path), "ld-musl-") }

func lookError(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return fileError(err)
}

// programStatus is the exit status of the target, as an error for exitStatus. If the session
// has detached from the target, which is our child, it waits for its end first.
func programStatus(sess *kprobes.Session) error {
	if exit := sess.Exit(); exit != nil {
		return asStatus(exit.Code)
	}
	p, err := os.FindProcess(sess.PID())
	if err != nil {
		return err
	}
	state, err := p.Wait()
	if exit := sess.Exit(); err != nil && exit != nil {
		return asStatus(exit.Code) // it ended while it was let go
	}
	if err != nil {
		return fmt.Errorf("waiting for process %d: %w", sess.PID(), err)
	}
	type killed interface { // syscall.WaitStatus
		Signaled() bool
		Signal() syscall.Signal
	}
	if ws, ok := state.Sys().(killed); ok && ws.Signaled() {
		return asStatus(128 + int(ws.Signal()))
	}
	return asStatus(state.ExitCode())
}

func asStatus(code int) error {
	if code == 0 {
		return nil
	}
	return statusError(code)
}

// relay handles the signals that gokprobe gets while it waits for its child, the target.
// The terminal sends SIGINT and SIGQUIT to both, and the target decides whether to end.
// Before any of the target's own code has run, it can't decide: each of these signals but
// SIGPIPE ends the start then.
type relay struct {
	ctx    context.Context // of the start
	cancel context.CancelCauseFunc
	ch     chan os.Signal
	target chan *started   // gets the target when it is about to run
	taken  chan error      // the answer: the signal that has ended the start before, or nil
	enough context.Context // ends with a signal after the target's end, while what it has left is followed
	end    context.CancelFunc
	ended  chan struct{} // closed when the session is over, and the target has ended
	again  chan struct{} // closed by a signal after that: the user does not want to wait for output
}

// started is a target that is about to run.
type started struct {
	sess    *kprobes.Session
	process *os.Process
}

func newRelay() *relay {
	r := &relay{ch: make(chan os.Signal, 4), target: make(chan *started), taken: make(chan error), ended: make(chan struct{}), again: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.enough, r.end = context.WithCancel(context.Background())
	signals := []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	signal.Notify(r.ch, signals...)
	go r.watch()
	return r
}

// whileStarting calls f, which prepares the target. A signal meanwhile ends f, and whileStarting
// returns which it was. If none came, later signals are passed on to the target.
func (r *relay) whileStarting(f func(context.Context) error, sess *kprobes.Session) error {
	if err := f(r.ctx); err != nil {
		if r.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = context.Cause(r.ctx)
		}
		return err
	}
	process, _ := os.FindProcess(sess.PID())
	r.target <- &started{sess, process}
	return <-r.taken
}

// finish tells that the session is over. If the target has ended too, the next
// signal is for gokprobe.
func (r *relay) finish(sess *kprobes.Session) {
	if sess.Exit() != nil {
		close(r.ended)
	}
}

func (r *relay) stop() {
	signal.Stop(r.ch)
	close(r.ch)
	r.cancel(nil)
	r.end()
}

func (r *relay) watch() {
	target := r.watchStart()
	stuck := false
	for sig := range r.ch {
		select {
		case <-r.ended:
			if sig != syscall.SIGPIPE && !stuck {
				stuck = true
				close(r.again)
			}
			continue
		default:
		}
		if target == nil || sig == syscall.SIGPIPE {
			continue
		}
		if target.sess.Exit() != nil {
			r.end() // it has decided, and what it has left does not decide for us
			continue
		}
		if sig == syscall.SIGTERM || sig == syscall.SIGHUP || sig == syscall.SIGABRT {
			_ = target.process.Signal(sig)
		}
	}
}

// watchStart watches until the target is about to run, and returns it. If the start
// fails instead, it returns nil.
func (r *relay) watchStart() *started {
	for {
		select {
		case target := <-r.target:
			r.taken <- context.Cause(r.ctx)
			return target
		case sig, ok := <-r.ch:
			if !ok {
				return nil
			}
			if sig != syscall.SIGPIPE {
				r.cancel(fmt.Errorf("ended by signal %d (%v) before the target was started", int(sig.(syscall.Signal)), sig))
			}
		}
	}
}

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/script"
	"github.com/gokprobe/gokprobe/trace"
)

// scriptFlags are the flags of script and run that are about scenarios.
func scriptFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Uint64Flag{Name: "seed", Usage: "begin the scenario's randomness with `N`; the default is a random one, which is printed"},
		&cli.BoolFlag{Name: "injected", Usage: "print each call that inject() makes fail, as gokprobe inject does"},
		&cli.Uint64Flag{Name: "steps", Value: script.DefaultSteps, Usage: "cut a function of the scenario off after `N` steps of the interpreter"},
		&cli.StringSliceFlag{Name: "report", Usage: "write what was expected and what became of it to `FORMAT:FILE`, junit or tap, - for stdout; repeatable"},
	}
}

// scriptRequest is what the user asks of a scenario.
type scriptRequest struct {
	request
	file    string
	args    []string
	seed    uint64
	steps   uint64
	events  bool // print injected calls
	reports []reportFile
}

// reportFile is a -report.
type reportFile struct{ format, file string }

func parseScript(c *cli.Context, file string) (scriptRequest, error) {
	r := scriptRequest{
		request: request{duration: c.Duration("duration"), output: c.String("o"), noBoost: c.Bool("no-boost"), noOptimize: c.Bool("no-optimize"), follow: c.Bool("follow")},
		file:    file, seed: c.Uint64("seed"), steps: c.Uint64("steps"), events: c.Bool("injected"),
	}
	var err error
	if r.json, err = parseFormat(c); err != nil {
		return r, err
	}
	switch {
	case c.IsSet("duration") && r.duration <= 0:
		return r, usagef("-duration must be more than 0")
	case r.steps == 0:
		return r, usagef("-steps must be at least 1")
	}
	if !c.IsSet("seed") {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		r.seed = uint64(binary.NativeEndian.Uint32(b[:]))
	}
	for _, text := range c.StringSlice("report") {
		format, file, ok := strings.Cut(text, ":")
		if !ok || file == "" || format != "junit" && format != "tap" {
			return r, usagef("-report %s: write junit:FILE or tap:FILE, with - for stdout", text)
		}
		r.reports = append(r.reports, reportFile{format, file})
	}
	return r, nil
}

// scenario is one run of a scenario, from its file to the summary.
type scenario struct {
	std    stdio
	req    scriptRequest
	sess   *kprobes.Session // nil if there are several
	sc     *script.Script
	files  *sessionFiles // nil before load
	output *os.File
	lines  *lines
	told   bool // what became of it
}

// newScenario opens the output. Nothing else has happened when it fails.
func newScenario(std stdio, req scriptRequest) (*scenario, error) {
	if _, err := os.Stat(req.file); err != nil {
		return nil, usagef("cannot read the scenario %s: %w", req.file, fileError(err))
	}
	output, _, err := req.openOutput(std)
	if err != nil {
		return nil, err
	}
	return &scenario{std: std, req: req, output: output, lines: newLines()}, nil
}

// load executes the file and arms its probes, unless ctx is done before that.
func (sn *scenario) load(ctx context.Context, sess *kprobes.Session) error {
	sn.sess = sess
	err := sn.execute(ctx, sess)
	if err == nil {
		err = sn.arm(ctx)
	}
	if err == nil {
		sn.files = newFiles(sn.std, sess)
	}
	return err
}

// execute executes the file: for a session, or nil for several.
func (sn *scenario) execute(ctx context.Context, sess script.Session) error {
	options := script.Options{
		Session: sess, Context: ctx, Args: sn.req.args, Seed: sn.req.seed, Steps: sn.req.steps,
		Print:   func(text string) { sn.lines.put(sn.std.err, ownLines(text)) },
		Log:     func(text string) { sn.lines.put(sn.std.err, "gokprobe: "+oneLine(text)+"\n") },
		Problem: func(e *script.Error) { sn.lines.put(sn.std.err, "gokprobe: "+oneLine(e.Error())+"\n"+e.Picture()) },
		Report:  func(e script.Entry) { sn.lines.put(sn.output, sn.req.entry(e)) },
	}
	if sn.req.events {
		options.Injected = sn.injected()
	}
	var err error
	sn.sc, err = script.Load(sn.req.file, options)
	return inTime(ctx, err)
}

func (sn *scenario) arm(ctx context.Context) error { return inTime(ctx, sn.sc.Arm()) }

// inTime is scriptError, unless ctx is why it has not come to its end.
func inTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return scriptError(err)
}

// ownLines is what print() has put out. Its further lines are indented: what a target has put into the text makes no line of ours.
func ownLines(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") + "\n" }

// injected prints an injected call.
func (sn *scenario) injected() func(inject.Event) {
	var line strings.Builder
	printer := sn.req.newPrinter(false)(&line)
	return func(e inject.Event) {
		if e.Log == 0 {
			return
		}
		_ = printer.Hit(injectedHit(e)) // a Builder takes everything
		sn.lines.put(sn.output, line.String())
		line.Reset()
	}
}

// scriptError gives a mistake in a scenario its exit status.
func scriptError(err error) error {
	var place *trace.PlaceError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &place):
		return &classed{errPlace, err}
	case exitStatus(err) == exitFailed:
		return &classed{errUsage, err}
	}
	return err
}

// announce prints the line that others wait for.
func (sn *scenario) announce() {
	comm, err := procfs.Comm(sn.sess.PID(), 0)
	if err != nil {
		comm = "?"
	}
	sn.lines.put(sn.std.err, fmt.Sprintf("seed: %d\narmed: %s in %d (%s)\n", sn.req.seed, escape.Count(sn.sc.Placed(), "probe"), sn.sess.PID(), escape.Line(comm)))
}

// run lets the scenario run to its end.
func (sn *scenario) run(ctx context.Context) {
	if sn.req.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sn.req.duration)
		defer cancel()
	}
	over := make(chan struct{})
	var watch sync.WaitGroup // sn.lines may be closed when it is over
	watch.Go(func() { sn.watchOutlived(over) })
	sn.sc.Run(ctx)
	close(over)
	watch.Wait()
}

// watchOutlived says once, when the process has ended and followed children have not, that these are waited for.
func (sn *scenario) watchOutlived(over <-chan struct{}) {
	tick := time.NewTicker(goneInterval)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if left := outlived(sn.sess); left != "" {
			sn.lines.put(sn.std.err, "gokprobe: "+left+"; an interrupt ends that\n")
			return
		}
	}
}

// finish runs the scenario's own end, and prints and writes what became of it.
func (sn *scenario) finish(how script.Ending, giveUp <-chan struct{}) (failed bool, err error) {
	sn.told = true
	result := sn.sc.Finish(how)
	for _, r := range sn.req.reports {
		if rerr := sn.write(r, result); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	tellPatterns(sn.std, result.Patterns())
	out := sn.std.patient()
	if sn.req.json {
		out = sn.output
	}
	sn.lines.last(out, sn.req.summary(result, sn.sess == nil), giveUp)
	return result.Failed, errors.Join(err, sn.close(giveUp))
}

func (sn *scenario) close(giveUp <-chan struct{}) error {
	lost, err := sn.lines.close(giveUp)
	if lost > 0 && err == nil {
		sn.std.warn("%s lost, since the output took them slower than they came", escape.Count(lost, "line"))
	}
	if sn.output != sn.std.out.file {
		if cerr := sn.output.Close(); err == nil {
			err = cerr
		}
	}
	if err == nil || brokenPipe(err) {
		return nil
	}
	return fmt.Errorf("cannot write the output: %w", fileError(err))
}

// abort ends a session whose scenario could not be armed.
func (sn *scenario) abort(err error) error {
	return errors.Join(err, sn.files.close(), sn.sess.Close(), sn.close(nil))
}

// scriptAttached is the script command after its flags.
func scriptAttached(std stdio, pid int, req scriptRequest) error {
	sn, err := newScenario(std, req)
	if err != nil {
		return err
	}
	in := watchInterrupts(std.warn)
	defer in.stop()
	ctx, armed := req.arming(in.ctx)
	defer armed()
	starts, begun := startOnly(ctx)
	sess, err := kprobes.Attach(starts, pid, req.options(std))
	begun()
	switch {
	case errors.Is(err, kprobes.ErrGivenUp):
		return errors.Join(std.unarmed(ctx, pid, err), sn.close(nil))
	case err != nil:
		return attachError(errors.Join(err, sn.close(nil)))
	}
	req.who.warnForked(std, pid)
	if err := sn.load(ctx, sess); err != nil {
		return sn.abort(std.unarmed(ctx, pid, err))
	}
	armed()
	sn.announce()
	if !sn.sc.Idle() {
		sn.run(in.ctx)
	}
	closeErr := errors.Join(sn.files.close(), sn.sc.Disarm(), sess.Close())
	var how script.Ending
	if exit := sess.Exit(); exit != nil {
		how = script.Ending{Exited: true, Status: exit.Code}
	}
	failed, err := sn.finish(how, in.again)
	if err = errors.Join(closeErr, err); err == nil && failed {
		err = statusError(exitFailed) // all was told
	}
	return err
}

// scriptRun is run -script after its flags.
func scriptRun(std stdio, command []string, req scriptRequest) error {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return usagef("cannot run %s: %w", command[0], lookError(err))
	}
	sn, err := newScenario(std, req)
	if err != nil {
		return err
	}
	relay := newRelay()
	defer relay.stop()
	starts, begun := startOnly(relay.ctx)
	sess, err := kprobes.Launch(starts, kprobes.Command{
		Path: program, Args: command, Env: os.Environ(),
		Files: []*os.File{std.in, std.out.file, os.Stderr},
	}, req.options(std))
	begun()
	if err != nil {
		return notLaunched(std, command[0], errors.Join(fmt.Errorf("cannot run %s under a scenario: %w", command[0], err), sn.close(nil)))
	}
	if err := relay.whileStarting(func(ctx context.Context) error { return sn.load(ctx, sess) }, sess); err != nil {
		_ = sess.Signal(syscall.SIGKILL) // none of its code has run
		return sn.abort(err)
	}
	sn.announce()
	if err := sess.Start(); err != nil {
		return sn.abort(err)
	}
	sn.run(relay.enough)
	relay.finish(sess)
	if err := errors.Join(sn.files.close(), sn.sc.Disarm(), sess.Close()); err != nil {
		std.warn("%s", sentence(err))
	}
	status := programStatus(sess)
	failed, err := sn.finish(script.Ending{Exited: true, Status: exitStatus(status)}, relay.again)
	if err != nil {
		std.warn("%s", sentence(err))
	}
	if failed || err != nil {
		return statusError(exitFailed)
	}
	return status
}

// write writes a report.
func (sn *scenario) write(r reportFile, result script.Result) error {
	name := strings.TrimSuffix(filepath.Base(sn.req.file), ".star")
	var b strings.Builder
	var err error
	if r.format == "tap" {
		err = result.WriteTAP(&b)
	} else {
		err = result.WriteJUnit(&b, name)
	}
	switch {
	case err != nil:
		return fmt.Errorf("cannot make the report: %w", err)
	case r.file == "-":
		sn.lines.put(sn.std.out, b.String())
		return nil
	}
	if err := os.WriteFile(r.file, []byte(b.String()), 0o666); err != nil {
		return fmt.Errorf("cannot write the report %s: %w", r.file, fileError(err))
	}
	return nil
}

// runScenario is the run command with -script.
func runScenario(std stdio, c *cli.Context) error {
	for _, f := range []string{"sym", "addr", "ret", "inlined", "maxactive", "args", "locals", "arg", "globals", "filter", "if", "depth", "items", "bytes", "regs", "stack", "count", "all-rows", "max-hits", "hold", "kprobe-event", "mount"} {
		if c.IsSet(f) {
			return usagef("-%s does not go with -script: the scenario says what is probed", f)
		}
	}
	req, err := parseScript(c, c.String("script"))
	if err != nil {
		return err
	}
	req.args = c.StringSlice("script-arg")
	command := c.Args().Slice()
	if len(command) == 0 {
		return usagef("no program given, name it after --: gokprobe run -script SCENARIO.star -- COMMAND; for a running process use gokprobe script -p PID")
	}
	return scriptRun(std, command, req)
}

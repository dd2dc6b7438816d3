package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// work is one session of attach, run or demo, from placed probes to the summary.
type work struct {
	std    stdio
	req    request
	sess   *kprobes.Session
	tr     *trace.Session
	probes probes // none without specs, and before place
	sink   *sink  // nil if only counts are wanted
	output *os.File
	color  bool
	files  *sessionFiles // nil before place

	faults    *faulting  // nil if nothing is injected
	injecting *injecting // nil before place

	quietExit bool // print no line about the target's end
	exitTold  bool // it was printed
}

// options returns the options of the session that the request needs.
func (r request) options(std stdio) kprobes.Options {
	return kprobes.Options{Meant: r.meant, NoBoost: r.noBoost, NoOptimize: r.noOptimize, Returns: r.byReturns, Follow: r.follow, AwaitPrograms: r.follow,
		Log: func(s string) { std.warn("%s", s) }}
}

// workMaker prepares work on a session.
type workMaker func(std stdio, req request, sess *kprobes.Session, output *os.File, color bool) *work

// newWork prepares a session for probes: it opens the way that hits take to the output.
func newWork(std stdio, req request, sess *kprobes.Session, output *os.File, color bool) *work {
	w := &work{std: std, req: req, sess: sess, output: output, color: color}
	w.tr = trace.On(sess, trace.With(req.options(std)), trace.Log(std.logger()), req.progress.of(sess))
	if !req.count {
		w.sink = req.newSink(std.above(output), color)
	}
	return w
}

// place resolves, registers and arms all probes, or none, and opens the session's files. When
// ctx is done it returns at once. No further probe is armed then, and the end of the session
// disarms the others.
func (w *work) place(ctx context.Context) error {
	placed := make(chan error, 1)
	if err := w.sess.Symbols().Aside(ctx, func() { placed <- w.placeAll(ctx) }); err != nil {
		return err
	}
	if err := <-placed; err != nil {
		return err
	}
	w.sink.begin()
	if err := w.openFiles(ctx); err != nil {
		return err
	}
	return w.mountFiles()
}

// placeAll resolves, registers and arms.
func (w *work) placeAll(ctx context.Context) error {
	var q *trace.Queue
	if w.sink != nil {
		q = w.sink.queue
	}
	if err := w.probes.place(ctx, w.tr, w.req.asks(), q); err != nil {
		return err
	}
	if w.faults == nil {
		return nil
	}
	var err error
	if w.injecting, err = w.faults.arm(ctx, w.sess); err == nil {
		err = w.faults.complete(ctx, false)
	}
	return err
}

// stats returns the places and counts of the probes as they are now.
func (w *work) stats() trace.Stats { return w.probes.stats() }

// announce prints the line that scripts wait for.
func (w *work) announce() {
	w.req.progress.end()
	comm, err := procfs.Comm(w.sess.PID(), 0)
	if err != nil {
		comm = "?"
	}
	waiting, also := 0, ""
	places := w.stats().Places
	for _, at := range places {
		if at.Waiting {
			waiting++
		}
	}
	probes := len(places)
	if w.faults != nil {
		n, later := w.injecting.armed()
		probes, waiting = probes+n+later, waiting+later
	}
	if waiting > 0 {
		also = fmt.Sprintf(", %d waiting", waiting)
	}
	fmt.Fprintf(w.std.err, "armed: %s in %d (%s)%s\n", escape.Count(probes-waiting, "probe"), w.sess.PID(), escape.Line(comm), also)
	if w.req.hold && w.files.socket != nil {
		fmt.Fprintf(w.std.err, "held: gokprobe debugfs -p %d ls\n", w.sess.PID())
	}
}

// goneInterval is how often wait looks whether all probes are gone for good.
const goneInterval = time.Second

// wait returns when the session shall end: on an interrupt, after -duration, when the output
// has failed, when all wanted hits are there, or when there is nothing left to probe.
func (w *work) wait(ctx context.Context) {
	var expired <-chan time.Time
	if w.req.duration > 0 {
		t := time.NewTimer(w.req.duration)
		defer t.Stop()
		expired = t.C
	}
	full := w.probes.full()
	var failed <-chan struct{}
	if w.sink != nil {
		failed = w.sink.failed
	}
	tick := time.NewTicker(goneInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-expired:
		case <-failed:
		case <-full:
		case <-w.faults.done():
		case <-w.sess.Done():
		case <-tick.C:
			w.tellOutlived()
			why, gone := w.gone()
			if !gone || w.req.hold || why == "" { // the process is ending
				continue
			}
			w.std.warn("%s, so all probes are gone", why)
		}
		return
	}
}

// tellOutlived says once, when the process has ended and followed children have not, what is waited for.
func (w *work) tellOutlived() {
	if w.exitTold {
		return
	}
	if left := outlived(w.sess); left != "" {
		w.tellExit()
		w.std.warn("%s; an interrupt ends that", left)
	}
}

// outlived says that a process has ended and followed children have not; it is empty otherwise.
func outlived(sess *kprobes.Session) string {
	if sess.Exit() == nil {
		return ""
	}
	n := len(sess.Processes())
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("process %d has ended, and what it has left is followed further (%s now)", sess.PID(), escape.Count(n, "process"))
}

// gone reports whether no probe is left and none will come back, and why.
func (w *work) gone() (why string, gone bool) {
	if w.injecting != nil {
		return w.injecting.gone()
	}
	return w.probes.gone()
}

// finish detaches, writes what is still queued, and prints the summary. giveUp, when
// closed, ends the wait for a blocked output.
func (w *work) finish(giveUp <-chan struct{}) error {
	_ = w.stats() // reads the last counts: after the end of the process they stay as they are now
	w.injecting.close()
	err := errors.Join(w.files.close(), w.close())
	w.tellExit()
	lost, outErr := w.drain(giveUp)
	if sumErr := w.print(w.summary(lost), lost, w.sess.Disturbances(), outErr); outErr == nil {
		outErr = sumErr
	}
	return errors.Join(err, w.closeOutput(outErr))
}

// close removes the probes and detaches.
func (w *work) close() error {
	w.req.progress.end()
	if !w.quietExit { // else the terminal is the target's, too, and it runs
		defer w.std.progress("removing the probes from %d", w.sess.PID()).end()
	}
	return w.sess.Close()
}

// closeOutput closes the output, unless it is stdout. It returns the first error of the
// output, outErr if there was one.
func (w *work) closeOutput(outErr error) error {
	if w.output != w.std.out.file {
		if cerr := w.output.Close(); outErr == nil {
			outErr = cerr
		}
	}
	return w.outputError(outErr)
}

func (w *work) tellExit() {
	exit := w.sess.Exit()
	told := w.exitTold
	w.exitTold = exit != nil
	switch {
	case exit == nil, told, w.quietExit:
	case exit.Signal != 0:
		w.std.warn("process %d was killed by signal %d (%v)", w.sess.PID(), int(exit.Signal), exit.Signal)
	default:
		w.std.warn("process %d exited with status %d", w.sess.PID(), exit.Code)
	}
}

func (w *work) drain(giveUp <-chan struct{}) (lost uint64, err error) {
	if w.sink == nil {
		return 0, nil
	}
	return w.sink.close(giveUp)
}

// summary returns the final counts of all probes. lost is how many hits did not reach the
// output.
func (w *work) summary(lost uint64) *event.Summary {
	st := w.stats()
	sum := &event.Summary{
		PID: w.sess.PID(), Lost: lost + st.Lost, Losses: losses(st, lost), Skipped: skipped(st),
		Probes: w.req.probeSummaries(st.Places), Patterns: st.Patterns, Unoptimized: unoptimized(st.Places),
	}
	if w.injecting != nil {
		w.faults.summarizeOne(sum, w.injecting)
	}
	return sum
}

// print prints the summary, and before it warnings about lost records and foreign writes to
// the code. lost is how many of the lost records the output did not take.
func (w *work) print(sum *event.Summary, lost, disturbed uint64, outErr error) error {
	if !w.req.json && len(sum.Probes) == 0 || w.req.json && outErr != nil {
		return nil
	}
	tellPatterns(w.std, sum.Patterns)
	w.req.logs.tellOver(w.std)
	if n := lostBy(sum.Losses, tooFast); n > 0 {
		w.std.warn("%s lost, since they came faster than gokprobe could read them; with -no-optimize the target waits for gokprobe", escape.Count(n, "record"))
	}
	if disturbed > 0 {
		w.std.warn("a kernel uprobe or a debugger wrote over the code at probes (seen %s): hits until they were armed again are not counted",
			escape.Count(disturbed, "time"))
	}
	if lost > 0 && outErr == nil {
		w.std.warn("%s lost, since the output was read too slowly", escape.Count(lost, "record"))
	}
	return w.printSummary(sum)
}

// printSummary prints the summary: as JSON or as the table of -count to the output of the
// hits, else as text to stderr.
func (w *work) printSummary(sum *event.Summary) error {
	switch {
	case w.req.json:
		return event.NewJSON(w.output).Summary(sum)
	case w.req.count:
		return event.PrintCounts(w.output, sum, event.CountOptions{All: w.req.allRows, Columns: columns(w.output)})
	}
	return event.NewText(w.std.patient(), event.TextOptions{}).Summary(sum) // the session is closed
}

// missing is shown in place of a mechanism for a probe that has no address: its library is
// not loaded yet, or no longer.
func missing(waiting bool) string {
	if waiting {
		return "waiting"
	}
	return "gone"
}

// explained returns the mechanism and the reason as the summary shows them. how is the
// mechanism m in words, why is the reason that there is no jump. In text they share a column,
// and -no-optimize, which is the user's own reason, is left out.
func (r *request) explained(m kprobes.Mechanism, how, why string) (mechanism, reason string) {
	switch {
	case r.json:
		return how, why
	case why == "", m == kprobes.Boosted && r.noOptimize:
		return how, ""
	}
	return how + " (" + why + ")", ""
}

// outputError makes the sentence for a failed write to the output. It returns nil if the
// reader, such as head(1), has gone: it wants no more, which is no failure.
func (w *work) outputError(err error) error {
	name := "stdout"
	if w.req.output != "" {
		name = w.req.output
	}
	switch {
	case err == nil, brokenPipe(err):
		return nil
	case errors.Is(err, errOutputStuck):
		return fmt.Errorf("writing to %s was given up: %w", name, err)
	}
	return fmt.Errorf("cannot write to %s, so the probes were removed: %w", name, fileError(err))
}

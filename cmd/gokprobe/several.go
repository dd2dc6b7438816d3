package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/internal/door"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// several is one session with several processes, which may come and go: from placed probes to the summary.
type several struct {
	std    stdio
	req    request
	output *os.File
	color  bool
	sink   *sink // nil if there are no records
	does   joint

	file *mapWatch // nil if no others come

	folders door.Folders  // the files of each, by its PID
	mount   *door.Mounted // of folders; nil if it was not asked for

	mu      sync.Mutex
	held    []*holding
	ended   chan struct{}  // something is sent when one has ended; one element
	closing sync.WaitGroup // those that have ended and are let go; Add with mu held

	took int // processes
	told int // processes that have joined later, and were told of
}

// holding is one of the processes.
type holding struct {
	sess      *kprobes.Session
	tr        *trace.Session // of probing
	injecting *injecting     // of faulting
	files     *sessionFiles
	comm      string
	outlived  bool // it was told that it has ended, and what it has left has not
}

// attachSeveral does to all processes that are meant, and to those that map a file as they come, what newJoint makes.
func attachSeveral(std stdio, meant []target, who whom, file *mapWatch, req request, newJoint jointMaker) error {
	in := watchInterrupts(std.warn)
	defer in.stop()
	req.progress = std.progress("attaching to %s", escape.Count(len(meant), "process"))
	defer req.progress.end()
	s := &several{std: std, req: req, file: file, ended: make(chan struct{}, 1)}
	for _, t := range meant { // before the first is attached to: none may wait for a server
		std.fetchFor(in.ctx, t.pid, req)
	}
	ctx, armed := req.arming(in.ctx)
	defer armed()
	var err error
	if s.does, err = newJoint(ctx, s); err != nil {
		for _, t := range meant {
			t.id.Close()
		}
		return err
	}
	if pid, err := s.takeAll(ctx, meant); err != nil {
		return errors.Join(s.std.unarmed(ctx, pid, err), s.release())
	}
	if pid, err := s.takeForked(ctx, who, meant); err != nil {
		return errors.Join(s.std.unarmed(ctx, pid, err), s.release())
	}
	if err = s.does.complete(ctx, file != nil); err == nil {
		err = s.mountFolders()
	}
	if err != nil {
		pid := 0 // of none yet, where others may come
		if len(meant) > 0 {
			pid = meant[0].pid
		}
		return errors.Join(s.std.unarmed(ctx, pid, err), s.release())
	}
	armed()
	s.sink.begin()
	var found chan target
	if file != nil {
		found = make(chan target)
		go file.watch(in.ctx, found)
	}
	s.announce()
	s.wait(in.ctx, found)
	return s.finish(in.again)
}

// record opens the output, for records if any are wanted.
func (s *several) record() (err error) {
	if s.output, s.color, err = s.req.openOutput(s.std); err == nil && !s.req.count {
		s.sink = s.req.newSink(s.std.above(s.output), s.color)
	}
	return err
}

// takeAll takes the processes that are there at the beginning: all that were named, or none. Of those that were found by their name or file some can be left out, but
// not all if no others may come.
func (s *several) takeAll(ctx context.Context, meant []target) (failed int, err error) {
	var last error
	for i, t := range meant {
		err := s.take(ctx, t)
		switch {
		case err == nil:
		case t.found && ctx.Err() == nil:
			last = s.leftOut(t, err)
		default:
			for _, rest := range meant[i+1:] {
				rest.id.Close()
			}
			return t.pid, err
		}
		failed = t.pid
	}
	if len(s.all()) == 0 && s.file == nil {
		return failed, last
	}
	return 0, nil
}

// mostListings bounds takeForked where processes that can't be held fork all the time.
const mostListings = 16

// takeForked takes the processes that were forked after the others were listed, and before their parents were held: nobody follows those. It lists until there are none,
// as children of processes that are held belong to them. One that has executed another program meanwhile, and has its name, is not found.
func (s *several) takeForked(ctx context.Context, who whom, taken []target) (failed int, err error) {
	if !who.forks() {
		return 0, nil
	}
	known := map[int]bool{}
	for _, t := range taken {
		known[t.pid] = true
	}
	for range mostListings {
		more := who.forked(known)
		if len(more) == 0 {
			return 0, nil
		}
		if failed, err = s.takeAll(ctx, more); err != nil && (s.took == 0 || ctx.Err() != nil) { // else those that were taken have all ended: there is something to tell
			return failed, err
		}
	}
	s.std.warn("there are always more processes of these names that nobody follows; some are not probed")
	return 0, nil
}

// leftOut tells why a process that was found is not probed. That it has ended needs no words, nor that it is held already: it shares the memory of another
// one, as children of vfork(2) do.
func (s *several) leftOut(t target, err error) error {
	if !errors.Is(err, unix.ESRCH) && !errors.Is(err, kprobes.ErrExited) && !errors.Is(err, kprobes.ErrClosed) && !ending(t.pid) && !ours(t.pid) {
		s.std.warn("process %d is not probed: %s", t.pid, sentence(err))
	}
	return err
}

// ending tells that a process has ended or does so: an error then tells of what has gone with it.
func ending(pid int) bool {
	const exiting = 4 // PF_EXITING
	tids, _ := procfs.Tasks(pid)
	return !slices.ContainsFunc(tids, func(tid int) bool {
		st, err := procfs.ReadStat(pid, tid)
		return err == nil && st.Flags&exiting == 0
	})
}

// take takes one process: when it returns, everything is armed there, or it is as it was.
func (s *several) take(ctx context.Context, t target) error {
	req := s.req
	req.meant = t.id
	starts, begun := startOnly(ctx)
	sess, err := kprobes.Attach(starts, t.pid, req.options(s.std))
	begun()
	if !errors.Is(err, kprobes.ErrGivenUp) { // else somebody may still look at it
		t.id.Close()
	}
	if err != nil {
		return attachError(err)
	}
	h := &holding{sess: sess, comm: "?"}
	if comm, err := procfs.Comm(t.pid, 0); err == nil {
		h.comm = comm
	}
	if err := s.join(ctx, h); err != nil {
		return errors.Join(err, h.files.close(), sess.Close())
	}
	s.mu.Lock()
	s.held = append(s.held, h)
	s.took++
	s.mu.Unlock()
	go s.watchEnd(h)
	return nil
}

// join arms what is probed in one process more, and opens its files.
func (s *several) join(ctx context.Context, h *holding) error {
	joined := make(chan error, 1)
	if err := h.sess.Symbols().Aside(ctx, func() { joined <- s.does.join(ctx, h) }); err != nil {
		return err
	}
	if err := <-joined; err != nil {
		return fmt.Errorf("process %d: %w", h.sess.PID(), err)
	}
	w := &work{std: s.std, req: s.req, sess: h.sess}
	err := w.openFiles(ctx)
	if h.files = w.files; err != nil {
		s.does.leave([]*holding{h})
		return err
	}
	h.files.leave = s.folders.Add(strconv.Itoa(h.sess.PID()), h.files.tree)
	return nil
}

// watchEnd lets go of a process that has ended.
func (s *several) watchEnd(h *holding) {
	<-h.sess.Done()
	s.mu.Lock()
	i := slices.Index(s.held, h)
	if i >= 0 {
		s.held = slices.Delete(s.held, i, i+1)
		s.closing.Add(1)
	}
	s.mu.Unlock()
	if i < 0 {
		return // somebody else has it
	}
	defer s.closing.Done()
	s.does.leave([]*holding{h})
	_ = errors.Join(h.files.close(), h.sess.Close())
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

// all lists the processes that are held.
func (s *several) all() []*holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.held)
}

// mostNamed is how many processes are named in one line, and how many that join are told of.
const mostNamed = 20

// announce prints the line that scripts wait for.
func (s *several) announce() {
	s.req.progress.end()
	var names []string
	held := s.all()
	for _, h := range held {
		names = append(names, fmt.Sprintf("%d (%s)", h.sess.PID(), escape.Line(h.comm)))
	}
	if more := len(names) - mostNamed; more > 0 {
		names = append(names[:mostNamed], fmt.Sprintf("%d more", more))
	}
	said := "nothing yet"
	if len(held) > 0 {
		said = escape.Count(s.does.places(), "probe") + " in " + strings.Join(names, ", ")
	}
	if s.file != nil {
		said += ", and in whatever maps " + escape.Line(s.file.file)
	}
	fmt.Fprintf(s.std.err, "armed: %s\n", said)
}

// wait returns when the session shall end.
func (s *several) wait(ctx context.Context, found <-chan target) {
	var expired <-chan time.Time
	if s.req.duration > 0 {
		t := time.NewTimer(s.req.duration)
		defer t.Stop()
		expired = t.C
	}
	var failed <-chan struct{}
	if s.sink != nil {
		failed = s.sink.failed
	}
	ending, end := context.WithCancel(ctx) // which also ends what is begun in a process that does not answer
	defer end()
	go func() {
		select {
		case <-ending.Done():
		case <-expired:
		case <-failed:
		case <-s.does.done():
		}
		end()
	}()
	tick := time.NewTicker(goneInterval)
	defer tick.Stop()
	for found != nil || len(s.all()) > 0 {
		select {
		case <-s.ended:
		case t := <-found:
			s.late(ending, t)
		case <-tick.C:
			s.tellOutlived()
			s.letGo()
		case <-ending.Done():
			return
		}
	}
}

// tellOutlived says once of each process that has ended, while followed children of it have not, that these are waited for.
func (s *several) tellOutlived() {
	for _, h := range s.all() {
		if h.outlived {
			continue
		}
		if left := outlived(h.sess); left != "" {
			h.outlived = true
			s.std.warn("%s", left)
		}
	}
}

// letGo lets go of processes in which no probe is left for good, such as those that execute another program and are not followed. They may map the
// file again.
func (s *several) letGo() {
	if s.req.hold {
		return
	}
	for _, h := range s.all() {
		why, gone := s.does.gone(h)
		if !gone {
			continue
		}
		s.mu.Lock()
		i := slices.Index(s.held, h)
		if i >= 0 {
			s.held = slices.Delete(s.held, i, i+1)
		}
		s.mu.Unlock()
		if i < 0 {
			continue // it has ended
		}
		s.does.leave([]*holding{h})
		if err := errors.Join(h.files.close(), h.sess.Close()); err != nil {
			s.std.warn("process %d: %s", h.sess.PID(), sentence(err))
		}
		if s.file != nil {
			s.file.forget(h.sess.PID())
		} else {
			s.std.warn("process %d: %s, so all its probes are gone", h.sess.PID(), why)
		}
	}
}

// late takes a process that has come to map the file. One that can't be probed runs on without us.
func (s *several) late(ctx context.Context, t target) {
	if err := s.take(ctx, t); err != nil {
		if ctx.Err() == nil {
			_ = s.leftOut(t, err)
		}
		return
	}
	if s.told++; s.told <= mostNamed {
		fmt.Fprintf(s.std.err, "joined: %d (%s)\n", t.pid, escape.Line(s.named(t.pid)))
	}
	if s.told == mostNamed {
		s.std.warn("further processes that join are not told of; the summary has them all")
	}
}

func (s *several) named(pid int) string {
	for _, h := range s.all() {
		if h.sess.PID() == pid {
			return h.comm
		}
	}
	return "?"
}

// release lets all processes go, at the same time: one after the other they would be away for longer.
func (s *several) release() error {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	s.req.progress.end()
	defer s.std.progress("removing the probes from %s", escape.Count(len(held), "process")).end()
	s.does.leave(held)
	errs := make([]error, len(held))
	var wg sync.WaitGroup
	for i, h := range held {
		wg.Go(func() { errs[i] = errors.Join(h.files.close(), h.sess.Close()) })
	}
	wg.Wait()
	s.closing.Wait()
	return errors.Join(append(errs, s.unmountFolders())...)
}

// finish detaches, and tells what became of it.
func (s *several) finish(giveUp <-chan struct{}) error {
	disturbed := s.disturbances()
	err := s.release()
	if s.took == 0 {
		s.std.warn("no process was probed")
	}
	return errors.Join(err, s.does.tell(s, disturbed, giveUp))
}

// tellRecords writes what is still queued, and prints the summary that summarize makes.
func (s *several) tellRecords(summarize func(*event.Summary), disturbed uint64, giveUp <-chan struct{}) error {
	w := &work{std: s.std, req: s.req, output: s.output, color: s.color, sink: s.sink}
	lost, outErr := w.drain(giveUp)
	sum := &event.Summary{Lost: lost, Losses: losses(trace.Stats{}, lost), Processes: []event.ProcessSummary{}}
	summarize(sum)
	if sumErr := w.print(sum, lost, disturbed, outErr); outErr == nil {
		outErr = sumErr
	}
	return w.closeOutput(outErr)
}

func (s *several) disturbances() (n uint64) {
	for _, h := range s.all() {
		n += h.sess.Disturbances()
	}
	return n
}

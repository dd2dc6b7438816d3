package ptrace

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/halts"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Tracer owns the OS thread that traces. Create one per session.
type Tracer struct {
	handler Handler
	tid     int // the OS thread
	thread  ownThread
	once    sync.Once

	threads map[int]*Thread
	procs   map[int]*Process
	early   map[int]Stop // first stops of children whose parent's event is still to come
	// children are the launched processes. One that was detached is still this
	// thread's child and may end before the thread does.
	children map[int]*Process
	backlog  []*Thread // stopped threads whose stop is still to be dispatched

	bell *bell
	rung bool // the bell rang while the tracer waited for something else

	deaf bool // the bell was killed

	holdsIdle bool // StopIdle has stopped threads that LetIdle has not given back
	stopsIdle bool // StopIdle is about it
	givenBack uint

	turns uint // stops waited for
	moves uint // changed before a thread, or time, goes on: see Space.look

	unreaped       int // whose stop stays to be waited for (reap.go)
	unreapedStatus unix.WaitStatus
	missed         []missedStop

	quit giveUp

	gone chan struct{} // closed when run returns

	mu     sync.Mutex
	calls  []call // guarded by mu
	closed bool   // guarded by mu

	latencies halts.Latencies

	cpu  follower
	poll poll

	found map[string]found // by pattern

	fpu []byte // scratch for a thread's extended state

	noUserDispatch bool // the kernel has no request for it
}

type call struct {
	f    func()
	done chan struct{}
}

// New starts a tracer. Close must be called to end its thread. The error wraps arch.ErrUnsupported where this build can trace nothing.
func New() (*Tracer, error) {
	if err := host.Supported(); err != nil {
		return nil, err
	}
	if err := roomForFiles(); err != nil {
		return nil, err
	}
	t := &Tracer{handler: Nop{}, threads: map[int]*Thread{}, procs: map[int]*Process{}, early: map[int]Stop{}, children: map[int]*Process{}, gone: make(chan struct{}), quit: giveUp{done: make(chan struct{})}}
	ready := make(chan error)
	go t.run(ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("starting the tracer: %w", err)
	}
	return t, nil
}

// leastFiles is how many open files a session with one process may need at once, with some to spare.
const leastFiles = 64

// roomForFiles refuses a limit by which a session would find no file of /proc any more, and take processes for gone.
func roomForFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur >= leastFiles {
		return nil
	}
	return fmt.Errorf("no more than %d files may be open (ulimit -n, RLIMIT_NOFILE), and %d are needed at least: %w", l.Cur, leastFiles, unix.EMFILE)
}

// NewHere makes a tracer of the calling thread, which must be locked to its goroutine, for as long as that
// lasts: when the thread ends the kernel lets everything go that it still traces. All methods are called there. It has no bell, and answers
// nobody: Do fails with ErrClosed on any other thread, as for timers of ours.
func NewHere(h Handler) *Tracer {
	t := &Tracer{handler: h, tid: unix.Gettid(), threads: map[int]*Thread{}, procs: map[int]*Process{}, early: map[int]Stop{}, children: map[int]*Process{}, quit: giveUp{done: make(chan struct{})}}
	t.cpu.init()
	return t
}

// SetHandler installs h; without one there is Nop. Call it before the first Attach.
func (t *Tracer) SetHandler(h Handler) { t.handler = h }

// Do runs f on the tracer's thread and waits for it. On that thread already, as
// in a Handler, it calls f at once. It returns ErrClosed after Close, and where nobody answers (NewHere). Safe for
// concurrent use.
func (t *Tracer) Do(f func()) error {
	if unix.Gettid() == t.tid {
		f()
		return nil
	}
	c := call{f: f, done: make(chan struct{})}
	t.mu.Lock()
	if t.closed || t.bell == nil {
		t.mu.Unlock()
		return ErrClosed
	}
	t.send(c)
	<-c.done
	return nil
}

// post runs f on the tracer's thread, even while that is about to end.
func (t *Tracer) post(f func()) {
	t.mu.Lock()
	t.send(call{f: f, done: make(chan struct{})})
}

// postUnlessClosed is post for work on a session that may have ended.
func (t *Tracer) postUnlessClosed(f func()) {
	t.mu.Lock()
	if t.closed || t.bell == nil {
		t.mu.Unlock()
		return
	}
	t.send(call{f: f, done: make(chan struct{})})
}

// send unlocks t.mu.
func (t *Tracer) send(c call) {
	first := len(t.calls) == 0
	t.calls = append(t.calls, c)
	b := t.bell
	t.mu.Unlock()
	if first {
		b.ring()
	}
}

// Own tells whether the caller is on the tracer's thread.
func (t *Tracer) Own() bool { return unix.Gettid() == t.tid }

// Close ends the tracer's thread; the kernel then detaches all threads that it still
// traces, so detach first. When it returns, nothing is traced any more, unless it is
// called on that thread itself. It is idempotent and safe for concurrent use.
func (t *Tracer) Close() {
	_ = t.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
	})
	if unix.Gettid() != t.tid {
		<-t.gone
		t.once.Do(t.thread.waitEnd)
	}
}

// Ended is closed when the tracer's thread is about to end. Close waits until it has.
func (t *Tracer) Ended() <-chan struct{} { return t.gone }

// run is the tracer's thread. It never unlocks: when it returns, the Go runtime
// ends the OS thread, and the kernel releases every tracee of that thread
// (exit_ptrace in kernel/ptrace.c).
//
// The program's first thread would not end: Go keeps it for ever. One that has started programs is their parent, and would wait
// for them in their owners' place. Held here until another goroutine has started, it can't be the one that runs that.
func (t *Tracer) run(ready chan<- error) {
	runtime.LockOSThread()
	debug.SetPanicOnFault(true) // see Shared
	t.tid = unix.Gettid()
	if t.tid == os.Getpid() || isParent() {
		defer runtime.UnlockOSThread()
		started := make(chan error)
		go t.run(started)
		ready <- <-started
		return
	}
	defer close(t.gone)
	t.thread = thisThread()
	t.cpu.init()
	b, err := newBell()
	if err != nil {
		ready <- err
		return
	}
	t.bell = b
	quietSIGCHLD(true)
	ready <- nil
	defer t.lastWords()
	for !t.stopped() {
		t.safely(t.step)
	}
}

// safely keeps a panic from ending the program, and with it the target: its
// breakpoints would outlive us.
func (t *Tracer) safely(f func()) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			if Faulted(v) {
				v = fmt.Errorf("%w: %v", ErrShared, v)
			}
			t.handler.Panicked(v, stack)
		}
	}()
	f()
}

func (t *Tracer) stopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed && len(t.calls) == 0
}

// step handles one stop or one round of calls.
func (t *Tracer) step() {
	t.moves++
	if th := t.nextBacklog(); th != nil {
		t.dispatch(th)
		return
	}
	if t.deaf {
		t.deaf = false
		t.replaceBell()
	}
	if t.rung {
		t.rung = false
		t.answer()
		return
	}
	if t.turns++; t.turns%fairness == 0 && t.drain() {
		return
	}
	tid, ws, err := t.waitAny()
	switch {
	case err != nil:
		t.rung, t.deaf = true, true // ECHILD: even the bell is gone
	case tid == 0: // notes were answered
	case tid == t.bell.pid:
		t.resumed(tid)
		if !t.bell.rearm(ws) { // before what it rang for, which may wait for it to ring again
			t.replaceBell()
		}
		t.answer()
	default:
		if th := t.record(decode(tid, ws)); th != nil {
			t.dispatch(th)
		}
	}
}

// fairness is the number of stops after which all threads that wait get their turn.
const fairness = 32

// drain collects every status that is there and reports whether there was any. wait4
// looks at the youngest tracee first. So among threads that hit without pause it would
// never come to the oldest: the leader, and the bell.
func (t *Tracer) drain() (any bool) {
	for {
		tid, ws, err := t.peek(-1, unix.WNOHANG)
		if err != nil || tid == 0 {
			return any
		}
		any = true
		t.note(tid, ws, nil)
	}
}

// replaceBell starts a new bell after somebody killed the old one.
func (t *Tracer) replaceBell() {
	b, err := newBell()
	if err != nil {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		return
	}
	t.mu.Lock()
	t.bell = b
	t.mu.Unlock()
	t.answer()
}

func (t *Tracer) nextBacklog() *Thread {
	for len(t.backlog) > 0 {
		th := t.backlog[0]
		t.backlog[0] = nil // else all that is known of it stays as long as the list's memory
		t.backlog = t.backlog[1:]
		if th.queued && t.threads[th.TID] == th {
			th.queued = false
			return th
		}
	}
	return nil
}

// answer runs the calls that were sent so far, and then handles the threads that have stopped meanwhile: they get their turn before the calls that come
// now. Who works in slices, and sends the next call as soon as one has returned, would keep them waiting else: wait4 tells of the bell first.
func (t *Tracer) answer() {
	for left := t.unanswered(); left > 0; left-- {
		t.mu.Lock()
		if len(t.calls) == 0 { // one of them has had the others answered
			t.mu.Unlock()
			break
		}
		c := t.calls[0]
		t.calls[0] = call{} // as in nextBacklog
		t.calls = t.calls[1:]
		t.mu.Unlock()
		t.serve(c)
	}
	t.rung = t.rung || t.unanswered() > 0 // those rang no bell; before what follows, which may take long or panic
	t.handleStopped()
}

// handleStopped handles threads that have stopped, but no more than some: those that stop ever anew shall not keep callers waiting. Each is handled
// before the next is looked at, so none has its stop taken while it waits (reap.go).
func (t *Tracer) handleStopped() {
	const most = 64
	for range most {
		if t.ends() {
			return
		}
		if th := t.nextBacklog(); th != nil {
			t.dispatch(th)
			continue
		}
		tid, ws, err := t.peek(-1, unix.WNOHANG)
		if err != nil || tid == 0 {
			return
		}
		t.note(tid, ws, nil)
	}
}

// ends tells that stops which are noted now may never be dispatched: they are left to the kernel, which then knows the signals that they are for.
func (t *Tracer) ends() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed || t.GivenUp()
}

func (t *Tracer) unanswered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}

func (t *Tracer) serve(c call) {
	defer close(c.done) // also if f ends the goroutine
	t.moves++
	t.safely(c.f)
}

// lastWords runs when the tracer's goroutine ends. If that was not asked for, a handler
// called runtime.Goexit, as testing.T.Fatal does.
func (t *Tracer) lastWords() {
	t.mu.Lock()
	asked := t.closed
	t.closed = true
	t.mu.Unlock()
	if !asked {
		t.handler.Panicked("the tracer's goroutine was ended (runtime.Goexit)", debug.Stack())
	}
	for t.unanswered() > 0 {
		t.answer()
	}
	quietSIGCHLD(false)
	t.bell.close()
}

package debugfs

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/debugfs/errlog"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Options of a Tree. The zero value is the usual choice.
type Options struct {
	BufferKB int // of the trace, in units of 1024 bytes; 0: DefaultBufferKB
	// Log gets what the kernel prints to its log: failures that were injected, lines joined by newlines. It is called on
	// the tracer's thread. nil gives it to slog.Default, as warnings.
	Log func(string)
}

// DefaultBufferKB is the size of the trace in units of 1024 bytes, unless Options or buffer_size_kb say
// otherwise: some 30,000 events.
const DefaultBufferKB = 8192

// Tree is the files of a session. All methods may be called from any goroutine, but not from a
// handler of the session.
type Tree struct {
	session *kprobes.Session
	errors  errlog.Log
	trace   *buffer
	logger  func(string) // Options.Log
	failing *failFunction
	began   time.Time     // with a monotonic reading
	uptime  time.Duration // of the machine at began

	on     atomic.Bool                       // tracing_on
	stacks atomic.Bool                       // options/stacktrace
	pids   atomic.Pointer[map[int]bool]      // set_event_pid; nil: all threads
	index  atomic.Pointer[map[string]*event] // by group/name, for hits
	spare  atomic.Pointer[buffer]            // the snapshot; nil: none was taken

	// mu is held while something is changed, and while the session is asked for it.
	mu                sync.Mutex
	events            []*event // in the order of their definition
	lastID, lastProbe int
	triggers          *trigger.Table
	groupRefused      map[string]*caret.Error // filters of groups
	closed            bool
}

// New makes the files of s. It registers nothing until an event is defined. The Tree is closed before the session is.
func New(s *kprobes.Session, o Options) *Tree {
	if o.BufferKB <= 0 {
		o.BufferKB = DefaultBufferKB
	}
	t := &Tree{session: s, trace: newBuffer(o.BufferKB << 10), lastID: firstID - 1, logger: o.Log}
	t.failing = newFailFunction(t)
	t.began, t.uptime = time.Now(), monotonic()
	t.triggers, t.groupRefused = trigger.NewTable(triggered{t}), map[string]*caret.Error{}
	t.reindex()
	t.on.Store(true)
	go func() {
		<-s.Done() // closed with the session at the latest
		t.trace.end()
	}()
	return t
}

// firstID is the id file of the first event that is defined. Small numbers are the kernel's own kinds of entries.
const firstID = 1001

// Close deletes all events, busy ones included, ends fail_function, and lets readers of
// trace_pipe come to their end. What was recorded can still be read; writing matches kprobes.ErrClosed.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.trace.end()
	if t.closed {
		return nil
	}
	t.closed = true
	errs := []error{t.failing.close()}
	for _, ev := range slices.Clone(t.events) {
		errs = append(errs, t.dropAll(slices.Clone(ev.probes)))
	}
	for _, ev := range t.synthetics() {
		t.forget(ev)
	}
	return errors.Join(errs...)
}

// usable is ErrClosed if the files are closed, or their session.
func (t *Tree) usable() error {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return kprobes.ErrClosed
	}
	return t.session.Do(func() {})
}

// monotonic is the clock that trace_clock calls mono.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // it can't fail
	}
	return time.Duration(ts.Nano())
}

// sinceBoot is at on that clock.
func (t *Tree) sinceBoot(at time.Time) time.Duration { return t.uptime + at.Sub(t.began) }

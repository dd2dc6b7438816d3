// Package debugfs shows a session as the kernel's files: kprobes/list and enabled, the
// sysctl debug.kprobes-optimization, tracefs with its events and their fetch arguments
// (Documentation/trace/kprobetrace.rst, uprobetracer.rst, events.rst), and
// fail_function, which makes functions return errors (Documentation/fault-injection).
//
// A Tree is an fs.FS for reading, with Write and Truncate besides. Package door gives it to
// programs that use files.
//
// What a hit does is found in hit.go. It runs on the tracer's thread, which never waits for
// Tree.mu: who holds that waits for the tracer.
//
// # Choices where a process is no kernel
//
//	what                          here                                      kernel
//	symbols in brackets           those of libraries name them: f+0x0/0x9   modules: the same
//	                              [libc.so.6]; the target's own do not
//	flags of a hit                none: .....                               irqs-off …
//	a hit's time                  CLOCK_MONOTONIC                           trace_clock
//	the trace                     one; buffer_size_kb is the memory that    one for each CPU, of records
//	                              all entries take
//	records that are lost in the  are told as [LOST n EVENTS], with those   only the latter
//	target                        that were overwritten
//	strings                       256 bytes, less if there are many         PATH_MAX
//	$argN, $retval                by the convention of the language: Go's   the platform's
//	                              registers are others than C's
//	MOD:SYM that is not loaded    waits, if MOD holds ".so"                 waits
//	@SYM of a library that is     is looked up when the event is turned on  and when the module comes
//	loaded anew
//	a uprobe's file               has to be mapped when the event is        is probed wherever it is mapped, now
//	                              turned on, unless its name holds ".so"    or later
//	a return probe in a file      at entries of functions                   anywhere
//	-:EVENT, some of whose        nothing is deleted: EBUSY                 all but the last are
//	probes are all that is on
//	events called enable, filter  refused: EEXIST                           hide the file
//	files that can't be written   EACCES                                    root's writes: EINVAL
//	a write of more than 1 MiB    E2BIG                                     done, line by line
//	values of a synthetic event   variables, and fields of the event with   of the event that onmatch names, too
//	                              the action
//	clocks of a histogram         local, global, mono: all CLOCK_MONOTONIC  as trace_clock
//	a filter that is changed      no hit in between is lost, or filtered    the same
//	                              by half
//	fail_function/inject          any function; what it may return is told  functions that are marked
//	                              by its declared result
//	make-it-fail, fail-nth        fail_function/tasks/TID                   /proc/PID, /proc/PID/task/TID
//	more attributes               when, rate, for, per-thread, seed         none
//	interval, when, space         of each process by itself                 of all
//
// Not part of the public promise: any version may change it.
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

package kprobes

import (
	"slices"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/ptrace"
)

// ThreadWatcher is told of the threads of a session's processes while it is watching. Its functions may be nil. They
// are called on the tracer's thread, must be quick, and must not call the session.
type ThreadWatcher struct {
	// Born is called when a thread of the session, creator, makes another one by clone, fork or vfork, before that
	// has run: a thread of the process, or the first one of a new process, which may be let go then. Where a thread
	// of the process ends at that moment creator is first told as the process's first thread, and then as it is.
	Born func(creator, tid int)
	// Gone is called when a thread ends, not when its process is let go. Its ID may come again. A thread that is not its process's
	// first one and executes a program is the first one then: Born is called with its former ID as creator, and then Gone with that.
	Gone func(tid int)
	// Ended is called when a process has ended or was let go, by its ID, which may come again. It is not called when the session closes.
	Ended func(pid int)
}

// watchers is the ThreadWatchers of a session. Safe for concurrent use.
type watchers struct {
	all atomic.Pointer[[]*ThreadWatcher]
}

// WatchThreads has w told from now on, until stop is called; it may be told a last time while that runs.
func (s *Session) WatchThreads(w ThreadWatcher) (stop func()) {
	s.watchers.change(func(all []*ThreadWatcher) []*ThreadWatcher { return append(all, &w) })
	return func() {
		s.watchers.change(func(all []*ThreadWatcher) []*ThreadWatcher {
			return slices.DeleteFunc(all, func(x *ThreadWatcher) bool { return x == &w })
		})
	}
}

func (wa *watchers) change(change func([]*ThreadWatcher) []*ThreadWatcher) {
	for {
		old := wa.all.Load()
		var all []*ThreadWatcher
		if old != nil {
			all = slices.Clone(*old)
		}
		if all = change(all); wa.all.CompareAndSwap(old, &all) {
			return
		}
	}
}

func (wa *watchers) list() []*ThreadWatcher {
	if all := wa.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Born implements ptrace.Handler.
func (s hooks) Born(creator, born *ptrace.Thread) {
	for _, w := range s.watchers.list() {
		if w.Born != nil {
			w.Born(creator.TID, born.TID)
		}
	}
}

// Gone implements ptrace.Handler.
func (s hooks) Gone(th *ptrace.Thread) { s.watchers.gone(th.TID) }

func (wa *watchers) gone(tid int) {
	for _, w := range wa.list() {
		if w.Gone != nil {
			w.Gone(tid)
		}
	}
}

// Renamed implements ptrace.Handler.
func (s hooks) Renamed(former int, th *ptrace.Thread) {
	for _, w := range s.watchers.list() {
		if w.Born != nil {
			w.Born(former, th.TID)
		}
	}
	s.watchers.gone(former)
}

// ended tells that a process is none of the session's any more.
func (wa *watchers) ended(p *ptrace.Process) {
	for _, w := range wa.list() {
		if w.Ended != nil {
			w.Ended(p.PID)
		}
	}
}

var _ ptrace.Handler = hooks{}

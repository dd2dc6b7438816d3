package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

const (
	// progressGrace is how long something may take before anybody is told how far it has come.
	progressGrace = 500 * time.Millisecond
	// progressPause is how long a line can be read before the next one replaces it.
	progressPause = 100 * time.Millisecond
)

// progress tells on a terminal how far the command has come with something that takes long. It is one line, rewritten in place, which goes when
// the work is over. A nil progress tells nobody. Its methods may be called concurrently.
type progress struct {
	show  func(line string)
	pause time.Duration

	mu     sync.Mutex
	line   string
	placed map[*kprobes.Session]trace.Progress
	timer  *time.Timer // of the next time that the line is shown; nil when the work is over
}

// progress begins to tell of work that line describes. Where stderr is no terminal it tells nobody: scripts and logs get no such lines.
func (s stdio) progress(format string, args ...any) *progress {
	c, ok := s.err.(*console)
	if !ok || !c.rewrites {
		return nil
	}
	return newProgress(c.setLine, progressGrace, progressPause, fmt.Sprintf(format, args...))
}

func newProgress(show func(string), grace, pause time.Duration, line string) *progress {
	p := &progress{show: show, pause: pause, line: line, placed: map[*kprobes.Session]trace.Progress{}}
	p.mu.Lock() // tell may run before the timer is known: to it that would be the end of the work
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(grace, p.tell)
	return p
}

// tell shows the line as it is now.
func (p *progress) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.show(p.line)
		p.timer.Reset(p.pause)
	}
}

// of has what a session of package trace tells about its places be shown.
func (p *progress) of(s *kprobes.Session) trace.Option {
	return trace.OnProgress(func(at trace.Progress) { p.note(s, at) })
}

// note makes the line one of the places of all sessions together.
func (p *progress) note(s *kprobes.Session, at trace.Progress) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed[s] = at
	all := trace.Progress{Arming: true}
	for _, at := range p.placed {
		all.Done, all.Of, all.Arming = all.Done+at.Done, all.Of+at.Of, all.Arming && at.Arming
	}
	what := "checking"
	if all.Arming {
		what = "arming"
	}
	p.line = fmt.Sprintf("%s: %d of %s", what, all.Done, escape.Count(all.Of, "place"))
}

// end takes the line away.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
		p.show("")
	}
}

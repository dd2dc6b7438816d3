package dap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/trace"
)

// session is an attached process with its breakpoints.
type session struct {
	c      *client
	held   Session
	target Target
	queue  *trace.Queue
	read   sync.WaitGroup // the reader of queue, and who tells of losses
	over   chan struct{}  // closed by end
	ending sync.Once

	clients sync.Map // from source files of the debug information to what the client calls them

	// Used by the goroutine that answers requests.
	ids        int // the last breakpoint's
	bySource   map[string][]*breakpoint
	byFunction []*breakpoint

	mu      sync.Mutex
	labels  map[string]*breakpoint // by the label of hits, also of those whose hits may be in queue still
	removed []*breakpoint          // since the queue was last read
	lines   uint64                 // that were told
	limited uint64                 // that were not, since they were more than the rate
	shown   snapshots
}

var errAttached = errors.New("a process is attached to: disconnect first")

// attach takes hold of the process that a request means.
func (c *client) attach(arguments json.RawMessage) error {
	if c.session != nil {
		return errAttached
	}
	t, err := readTarget(arguments)
	if err != nil {
		return err
	}
	held, err := c.adapter.Attach(c.work, t, c.tell)
	if err != nil {
		return err
	}
	c.session = &session{
		c: c, held: held, target: t, queue: trace.NewQueue(), over: make(chan struct{}),
		bySource: map[string][]*breakpoint{}, labels: map[string]*breakpoint{},
	}
	return nil
}

// begin tells the client that breakpoints can be set, and reads their hits.
func (s *session) begin() {
	s.c.out.put(event("initialized", nil))
	s.read.Add(2)
	go s.readHits()
	go s.tellLosses()
	go s.awaitEnd()
}

// awaitEnd tells the client that the process has ended, if it does so before the session.
func (s *session) awaitEnd() {
	select {
	case <-s.over:
		return
	case <-s.held.Done():
	}
	s.end()
}

// end lets the process go, and tells the counts of the breakpoints and the end. It returns when all is told, also if another goroutine does it.
func (s *session) end() {
	s.ending.Do(func() {
		if err := s.held.Close(); err != nil {
			s.c.tell(sentence(err))
		}
		s.queue.Close()
		close(s.over)
		s.read.Wait()
		s.tellLoss()
		s.summarize()
		if code, ended := s.held.Exit(); ended {
			s.c.out.put(event("exited", protocol.ExitedEventBody{ExitCode: code}))
		}
		s.c.out.put(event("terminated", protocol.TerminatedEventBody{}))
	})
}

// summarize tells the counts of the breakpoints that are left, and of all.
func (s *session) summarize() {
	s.mu.Lock()
	defer s.mu.Unlock()
	byID := func(a, b *breakpoint) int { return cmp.Compare(a.id, b.id) }
	for _, b := range slices.SortedFunc(maps.Values(s.labels), byID) {
		if b.probe != nil && !b.gone {
			s.c.out.put(said(b.summary()))
		}
	}
	text := fmt.Sprintf("detached from %d", s.held.PID())
	if code, ended := s.held.Exit(); ended {
		text = fmt.Sprintf("process %d has ended with status %d", s.held.PID(), code)
	}
	text += ": " + escape.Count(s.lines, "line")
	if s.limited > 0 {
		text += fmt.Sprintf(", %d more than the rate", s.limited)
	}
	if n := s.queue.Lost(); n > 0 {
		text += fmt.Sprintf(", %s lost", escape.Count(n, "hit"))
	}
	s.c.out.put(said(text))
}

// tellInterval is how often losses are told.
const tellInterval = time.Second

// tellLosses tells now and then how many lines were not printed.
func (s *session) tellLosses() {
	defer s.read.Done()
	tick := time.NewTicker(tellInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-tick.C:
			s.tellLoss()
		}
	}
}

func (s *session) tellLoss() {
	if n := s.c.out.takeUnsent(); n > 0 {
		s.warn(fmt.Sprintf("%s not sent, since the client did not read them", escape.Count(n, "message")))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.labels {
		s.limited += s.tellOver(b)
	}
}

// tellOver tells how many lines of b were not printed since they were more than its rate, since it was last told.
func (s *session) tellOver(b *breakpoint) (n uint64) {
	if b.pace == nil {
		return 0
	}
	over := b.pace.Over()
	if n = over - b.toldOver; n > 0 {
		b.toldOver = over
		s.warn(fmt.Sprintf("%s: %s not printed, since they were more than %d a second", b.name(), escape.Count(n, "line"), b.pace.Most()))
	}
	return n
}

// warn tells of a loss.
func (s *session) warn(text string) {
	s.c.out.offer(event("output", output("important", escape.Line(text))))
}

// threads lists those of the process, and those of snapshots, which may be of others.
func (s *session) threads() (any, error) {
	body := protocol.ThreadsResponseBody{Threads: []protocol.Thread{}}
	known := map[int]bool{}
	for _, t := range s.held.Threads() {
		known[t.TID] = true
		body.Threads = append(body.Threads, protocol.Thread{Id: t.TID, Name: escape.Line(t.Name)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tid, shot := range s.shown.byThread {
		if !known[tid] {
			body.Threads = append(body.Threads, protocol.Thread{Id: tid, Name: escape.Line(shot.comm)})
		}
	}
	return body, nil
}

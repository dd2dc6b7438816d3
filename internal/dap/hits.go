package dap

import (
	"fmt"
	"path"
	"time"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/trace"
)

// readHits tells the client of hits until the session ends.
func (s *session) readHits() {
	defer s.read.Done()
	for {
		s.mu.Lock()
		gone := s.removed // their hits are all in the next batch, or were told
		s.removed = nil
		s.mu.Unlock()
		batch := s.queue.Take()
		s.mu.Lock()
		for i := range batch {
			if b := s.labels[batch[i].Label]; b != nil {
				s.tellHit(b, &batch[i])
			}
		}
		for _, b := range gone {
			s.limited += s.tellOver(b)
			delete(s.labels, fmt.Sprint(b.id))
		}
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
	}
}

// tellHit tells of one hit: a line, or a snapshot.
func (s *session) tellHit(b *breakpoint, h *trace.Hit) {
	if b.waits { // its library has come
		s.locate(&b.armed)
		s.c.out.offer(event("breakpoint", protocol.BreakpointEventBody{Reason: "changed", Breakpoint: s.describe(b)}))
	}
	if b.log == nil {
		s.show(b, h)
		return
	}
	out := output("stdout", escape.Line(b.log.Says(h)))
	if b.source != "" {
		out.Source = &protocol.Source{Name: path.Base(b.source), Path: b.source}
	} else {
		out.Source = s.clientSource(b.file)
	}
	if out.Source != nil && b.at > 0 {
		out.Line = b.at - 1 + s.c.first
	}
	if s.c.out.offer(event("output", out)) {
		s.lines++
	}
}

// snapshots are shown to the client: one of each breakpoint and each thread at most.
type snapshots struct {
	byThread map[int]*snapshot
	refs     int // the last number of a frame or of a list of variables
}

// snapshot is a hit's stack and values.
type snapshot struct {
	of     *breakpoint
	comm   string
	frames []protocol.StackFrame
	scopes []*node
}

// node is a value, or a scope, with those in it.
type node struct {
	name, text string
	hint       string // of a scope
	ref        int    // 0 without parts
	parts      []*node
}

// stackDepth is how many frames a snapshot has.
const stackDepth = 64

// snapshotPause is how long threads run on between two snapshots of a breakpoint: one that the client can't be shown has been made, too.
const snapshotPause = 100 * time.Millisecond

// snapshotWants are the wants of a snapshot's hits.
func (s *session) snapshotWants(b *breakpoint, due func() bool) []trace.Want {
	return []trace.Want{trace.Args(), trace.Locals(), trace.Regs(), trace.Stack(stackDepth), trace.If(b.when), trace.Only(func() bool {
		if !due() {
			return false
		}
		now := time.Now().UnixNano()
		if last := b.made.Load(); b.showing.Load() || now-last < int64(snapshotPause) {
			b.hidden.Add(1)
			return false
		}
		b.made.Store(now)
		return true
	})}
}

// show shows a snapshot, if its thread and its breakpoint show none.
func (s *session) show(b *breakpoint, h *trace.Hit) {
	if s.shown.byThread == nil {
		s.shown.byThread = map[int]*snapshot{}
	}
	if s.shown.byThread[h.TID] != nil || b.showing.Load() || b.gone {
		b.hidden.Add(1)
		return
	}
	shot := s.snapshot(b, h)
	reason := "breakpoint"
	if b.source == "" {
		reason = "function breakpoint"
	}
	if !s.c.out.offer(event("stopped", protocol.StoppedEventBody{
		Reason: reason, ThreadId: h.TID, HitBreakpointIds: []int{b.id}, Description: "Snapshot",
		Text: "as thread " + escape.Line(h.Comm) + " came by; it runs on",
	})) {
		return
	}
	b.showing.Store(true)
	s.shown.byThread[h.TID] = shot
}

// snapshot keeps what a hit tells.
func (s *session) snapshot(b *breakpoint, h *trace.Hit) *snapshot {
	shot := &snapshot{of: b, comm: h.Comm}
	for _, f := range h.Stack {
		s.shown.refs++
		frame := protocol.StackFrame{
			Id: s.shown.refs, Name: escape.Line(f.Symbol), Source: s.clientSource(f.Path), InstructionPointerReference: f.Addr.String(),
		}
		if frame.Name == "" {
			frame.Name = f.Addr.String()
		}
		if f.Line > 0 {
			frame.Line = f.Line - 1 + s.c.first
		}
		shot.frames = append(shot.frames, frame)
	}
	var args, regs []trace.Arg
	for _, a := range h.Args {
		if len(a.Name) > 0 && a.Name[0] == '%' {
			regs = append(regs, a)
		} else {
			args = append(args, a)
		}
	}
	for _, scope := range []struct {
		name, hint string
		values     []trace.Arg
	}{{"Arguments", "arguments", args}, {"Locals", "locals", h.Locals}, {"Results", "returnValue", h.Results}, {"Registers", "registers", regs}} {
		if len(scope.values) == 0 {
			continue
		}
		s.shown.refs++
		n := &node{name: scope.name, hint: scope.hint, ref: s.shown.refs}
		for _, a := range scope.values {
			n.parts = append(n.parts, s.shown.node(a))
		}
		shot.scopes = append(shot.scopes, n)
	}
	return shot
}

// node is a value with its members or elements.
func (all *snapshots) node(a trace.Arg) *node {
	n := &node{name: escape.Line(a.Name), text: a.String()}
	parts := a.Parts()
	if len(parts) == 0 {
		return n
	}
	all.refs++
	n.ref = all.refs
	for _, p := range parts {
		n.parts = append(n.parts, all.node(p))
	}
	return n
}

// drop ends the snapshots of a breakpoint.
func (all *snapshots) drop(b *breakpoint) {
	for tid, shot := range all.byThread {
		if shot.of == b {
			delete(all.byThread, tid)
		}
	}
	b.showing.Store(false)
	b.made.Store(0) // the next hit may be shown
}

// dismiss ends the snapshot of a thread: the next hit is shown.
func (s *session) dismiss(tid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shot := s.shown.byThread[tid]
	if shot == nil {
		return
	}
	s.shown.drop(shot.of)
	if n := shot.of.hidden.Swap(0); n > 0 {
		s.c.tell(fmt.Sprintf("%s: %s while a snapshot was shown", shot.of.name(), escape.Count(n, "hit")))
	}
}

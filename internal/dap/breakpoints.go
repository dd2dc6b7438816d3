package dap

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/expr/logpoint"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/logline"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// asked is a breakpoint as the client asks for it. One that is asked for again, and is the same, stays armed.
type asked struct {
	source string // the client's path; empty for one of a function
	line   int    // from 1
	spec   string // of a function
	when   string // condition
	hits   string // hit condition
	text   string // of its lines; empty for a snapshot
	isLog  bool
}

// breakpoint is one of the client's, with its state.
type breakpoint struct {
	asked
	id    int
	where string        // SPEC of a function
	log   *logline.Line // nil for a snapshot
	pace  *trace.Pace   // nil without a rate

	armed           // with the session's lock held, but probe, which does not change
	gone     bool   // it was removed
	toldOver uint64 // lines

	reached atomic.Uint64 // hits that met the condition
	showing atomic.Bool   // a snapshot is shown
	hidden  atomic.Uint64 // hits meanwhile
	made    atomic.Int64  // when the last snapshot was made, in nanoseconds
}

// armed is the outcome of arming a breakpoint.
type armed struct {
	why    error  // why it is not armed
	probe  Probe  // nil with why
	file   string // of debug information
	at     int    // the line that is probed; 0 if unknown
	places int
	waits  bool // all its places are in libraries that are not loaded
}

// name is its name in sentences.
func (b *breakpoint) name() string {
	switch {
	case b.source == "":
		return b.where
	case b.at > 0:
		return fmt.Sprintf("%s:%d", path.Base(b.source), b.at)
	}
	return fmt.Sprintf("%s:%d", path.Base(b.source), b.line)
}

// setBreakpoints replaces those of a source.
func (s *session) setBreakpoints(a protocol.SetBreakpointsArguments) (any, error) {
	if a.Source.Path == "" {
		return nil, errors.New("a source is known by its path, and this one has none")
	}
	var all []asked
	for _, b := range a.Breakpoints {
		all = append(all, asked{
			source: a.Source.Path, line: b.Line + 1 - s.c.first, when: b.Condition, hits: b.HitCondition, text: b.LogMessage, isLog: b.LogMessage != "",
		})
	}
	if err := s.room(len(all) - len(s.bySource[a.Source.Path])); err != nil {
		return nil, err
	}
	now := s.replace(s.bySource[a.Source.Path], all)
	if s.bySource[a.Source.Path] = now; len(now) == 0 {
		delete(s.bySource, a.Source.Path)
	}
	return protocol.SetBreakpointsResponseBody{Breakpoints: s.described(now)}, nil
}

// setFunctionBreakpoints replaces those of functions, which are SPECs, or log points as gokprobe log has them.
func (s *session) setFunctionBreakpoints(a protocol.SetFunctionBreakpointsArguments) (any, error) {
	var all []asked
	for _, b := range a.Breakpoints {
		all = append(all, asked{spec: strings.TrimSpace(b.Name), when: b.Condition, hits: b.HitCondition, isLog: strings.Contains(b.Name, `"`)})
	}
	if err := s.room(len(all) - len(s.byFunction)); err != nil {
		return nil, err
	}
	s.byFunction = s.replace(s.byFunction, all)
	return protocol.SetFunctionBreakpointsResponseBody{Breakpoints: s.described(s.byFunction)}, nil
}

// room refuses so many breakpoints more, if that is too many.
func (s *session) room(more int) error {
	if s.count()+more > mostBreakpoints {
		return fmt.Errorf("there are at most %d breakpoints", mostBreakpoints)
	}
	return nil
}

// replace keeps the breakpoints that are asked for again, removes the others, and then adds the new ones.
func (s *session) replace(old []*breakpoint, all []asked) []*breakpoint {
	now := make([]*breakpoint, len(all))
	for i, a := range all {
		same := func(b *breakpoint) bool { return b != nil && b.asked == a && b.probe != nil }
		if k := slices.IndexFunc(old, same); k >= 0 {
			now[i] = old[k]
			old = slices.Delete(slices.Clone(old), k, k+1)
		}
	}
	for _, b := range old {
		s.remove(b)
	}
	for i, a := range all {
		if now[i] == nil {
			now[i] = s.add(a)
		}
	}
	return now
}

// remove disarms a breakpoint.
func (s *session) remove(b *breakpoint) {
	if b.probe == nil {
		return
	}
	err := b.probe.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.warn(fmt.Sprintf("%s: %s", b.name(), sentence(err)))
	}
	if b.gone = true; s.queue.Waiting() == 0 { // there are no hits of it to come
		s.limited += s.tellOver(b)
		delete(s.labels, fmt.Sprint(b.id))
		return
	}
	s.removed = append(s.removed, b)
}

// Bounds of what a client can have us keep.
const (
	mostBreakpoints = 4096
	longestText     = 16 << 10 // bytes, of a log message, a condition, a SPEC
)

// count is how many breakpoints there are.
func (s *session) count() int {
	n := len(s.byFunction)
	for _, list := range s.bySource {
		n += len(list)
	}
	return n
}

// check refuses what is too long.
func (a *asked) check() error {
	for _, text := range []string{a.source, a.spec, a.when, a.hits, a.text} {
		if len(text) > longestText {
			*a = asked{line: a.line}
			return fmt.Errorf("its texts have at most %d bytes each", longestText)
		}
	}
	return nil
}

// add arms a breakpoint, or finds out why it can't be.
func (s *session) add(a asked) *breakpoint {
	s.ids++
	b := &breakpoint{asked: a, id: s.ids, where: a.spec}
	if b.why = b.check(); b.why != nil {
		b.where = ""
		return b
	}
	wants, err := s.wants(b)
	if err != nil {
		b.why = err
		return b
	}
	s.mu.Lock()
	s.labels[fmt.Sprint(b.id)] = b // hits may come before arm returns
	s.mu.Unlock()
	st, err := s.arm(b, wants)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.armed = st
	if b.why = err; err != nil {
		delete(s.labels, fmt.Sprint(b.id))
	}
	return b
}

// errWouldHalt refuses breakpoints without a text.
var errWouldHalt = errors.New(`a breakpoint would halt the program, which gokprobe never does: give it a log message, or attach with "snapshots": true to see what was there at a hit`)

// arm places a breakpoint's probe.
func (s *session) arm(b *breakpoint, wants []trace.Want) (st armed, err error) {
	if b.source != "" {
		st.probe, err = s.armLine(b, wants)
	} else {
		st.probe, err = s.held.Probe(s.c.work, b.where, wants...)
	}
	if err != nil {
		return armed{}, err
	}
	s.locate(&st)
	return st, nil
}

// wants are those of a breakpoint's hits.
func (s *session) wants(b *breakpoint) ([]trace.Want, error) {
	due, err := parseHitCondition(b.hits)
	if err != nil {
		return nil, err
	}
	only := func() bool { return due(b.reached.Add(1)) }
	wants := []trace.Want{trace.Label(fmt.Sprint(b.id)), trace.To(s.queue)}
	if !b.isLog {
		if !s.target.Snapshots {
			return nil, errWouldHalt
		}
		return append(wants, s.snapshotWants(b, only)...), nil
	}
	p, err := b.point()
	if err != nil {
		return nil, err
	}
	b.log = logline.New(p)
	if b.source == "" {
		b.where = p.Spec
	}
	if s.target.Rate > 0 {
		b.pace = trace.NewPace(s.target.Rate)
		wants = append(wants, trace.At(b.pace))
	}
	wants = append(append(wants, b.log.Wants()...), trace.Only(only))
	return wants, trace.Check(b.log.AtReturn(), wants...)
}

// point is a log point's text and condition.
func (b *breakpoint) point() (p logpoint.Point, err error) {
	if b.source != "" {
		p = logpoint.Point{Text: b.text, Spec: b.source, If: b.when}
		p.Parts, err = logpoint.ParseText(b.text)
		return p, err
	}
	if p, err = logpoint.Parse(b.spec); err != nil {
		return p, err
	}
	if p.If != "" && b.when != "" {
		return p, errors.New("it has two conditions, one of them behind its text: leave one out")
	}
	if b.when != "" {
		p.If = b.when
	}
	return p, nil
}

// mostSlide is how many lines below the client's the line with code may be.
const mostSlide = 3

// armLine places a breakpoint at a line of a source, or at the next one that has code.
func (s *session) armLine(b *breakpoint, wants []trace.Want) (Probe, error) {
	file, err := s.source(s.c.work, b.source)
	if err != nil {
		return nil, err
	}
	for slide := range mostSlide + 1 {
		p, failed := s.held.Probe(s.c.work, fmt.Sprintf("%s:%d", file, b.line+slide), wants...)
		switch {
		case failed == nil:
			return p, nil
		case !errors.Is(failed, symbols.ErrNoLine):
			return nil, failed
		case slide == 0:
			err = failed // which tells the lines nearby
		}
	}
	return nil, err
}

// source is the file of debug information that the client means by a path.
func (s *session) source(ctx context.Context, name string) (string, error) {
	wanted := substituted(name, s.target.remaps)
	files, err := s.held.Sources(ctx, path.Base(wanted))
	if err != nil {
		return "", err
	}
	file, err := likeliest(files, wanted)
	if err == nil {
		s.clients.Store(file, name)
	}
	return file, err
}

// locate finds out where a probe is.
func (s *session) locate(st *armed) {
	places := st.probe.Stats().Places
	st.places, st.waits = len(places), true
	for _, p := range places {
		if p.Mechanism == kprobes.NoMechanism {
			continue
		}
		st.waits = false
		if file, line, ok := s.held.Line(p.Addr); ok && st.at == 0 {
			st.file, st.at = file, line
		}
	}
}

// described is breakpoints as the client is told of them.
func (s *session) described(all []*breakpoint) []protocol.Breakpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]protocol.Breakpoint, len(all))
	for i, b := range all {
		list[i] = s.describe(b)
	}
	return list
}

func (s *session) describe(b *breakpoint) protocol.Breakpoint {
	d := protocol.Breakpoint{Id: b.id, Verified: b.why == nil && !b.waits}
	line := b.at
	if b.source != "" {
		d.Source = &protocol.Source{Name: path.Base(b.source), Path: b.source}
		if line == 0 {
			line = b.line
		}
	} else if b.file != "" {
		d.Source = s.clientSource(b.file)
	}
	if line > 0 {
		d.Line = line - 1 + s.c.first
	}
	switch {
	case b.why != nil:
		d.Message = sentence(b.why)
	case b.waits:
		d.Message = "it waits for its library to be loaded"
	case b.source != "" && b.at > 0 && b.at != b.line:
		d.Message = fmt.Sprintf("line %d has no code, line %d is the next one", b.line, b.at)
	case b.places > 1:
		d.Message = fmt.Sprintf("armed in %s", escape.Count(b.places, "place"))
	}
	return d
}

// summary counts its hits.
func (b *breakpoint) summary() string {
	st := b.probe.Stats()
	text := fmt.Sprintf("%s: %s", b.name(), escape.Count(st.Hits, "hit"))
	for _, n := range []struct {
		n    uint64
		what string
	}{{st.Missed, "missed"}, {st.Lost, "lost"}} {
		if n.n > 0 {
			text += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	return text
}

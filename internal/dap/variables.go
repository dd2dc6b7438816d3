package dap

import (
	"errors"
	"fmt"
	"strings"

	protocol "github.com/google/go-dap"

	"github.com/gokprobe/gokprobe/internal/escape"
)

var errRuns = errors.New("the thread runs: only a snapshot has a stack and variables")

var errDismissed = errors.New("the snapshot that this belongs to is not shown any more")

// stackTrace is the stack of a thread's snapshot.
func (s *session) stackTrace(a protocol.StackTraceArguments) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shot := s.shown.byThread[a.ThreadId]
	if shot == nil {
		return nil, errRuns
	}
	all := shot.frames
	body := protocol.StackTraceResponseBody{TotalFrames: len(all), StackFrames: part(all, a.StartFrame, a.Levels)}
	return body, nil
}

// part is count elements of a list from start on; all others without a count.
func part[T any](all []T, start, count int) []T {
	start = max(0, min(start, len(all)))
	if count <= 0 || count > len(all)-start {
		count = len(all) - start
	}
	return append([]T{}, all[start:start+count]...)
}

// frame finds a frame of a snapshot.
func (all *snapshots) frame(id int) (shot *snapshot, n int, err error) {
	for _, shot := range all.byThread {
		for n, f := range shot.frames {
			if f.Id == id {
				return shot, n, nil
			}
		}
	}
	return nil, 0, errDismissed
}

// scopes are those of the innermost frame. What is in the others was not recorded.
func (s *session) scopes(a protocol.ScopesArguments) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shot, n, err := s.shown.frame(a.FrameId)
	if err != nil {
		return nil, err
	}
	body := protocol.ScopesResponseBody{Scopes: []protocol.Scope{}}
	if n > 0 {
		return body, nil
	}
	for _, scope := range shot.scopes {
		body.Scopes = append(body.Scopes, protocol.Scope{Name: scope.name, PresentationHint: scope.hint, VariablesReference: scope.ref, NamedVariables: len(scope.parts)})
	}
	return body, nil
}

// variables are the parts of a scope or a value.
func (s *session) variables(a protocol.VariablesArguments) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shot := range s.shown.byThread {
		if n := find(shot.scopes, a.VariablesReference); n != nil {
			body := protocol.VariablesResponseBody{Variables: []protocol.Variable{}}
			for _, p := range part(n.parts, a.Start, a.Count) {
				body.Variables = append(body.Variables, protocol.Variable{Name: p.name, Value: p.text, VariablesReference: p.ref})
			}
			return body, nil
		}
	}
	return nil, errDismissed
}

// find finds the node with a number.
func find(all []*node, ref int) *node {
	for _, n := range all {
		if n.ref == ref && ref > 0 {
			return n
		}
		if found := find(n.parts, ref); found != nil {
			return found
		}
	}
	return nil
}

// evaluate finds a variable in a snapshot, or a member or an element of one: a, a.b, a->b, a[3].
func (s *session) evaluate(a protocol.EvaluateArguments) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shot, frame, err := s.shown.frame(a.FrameId)
	if err != nil {
		return nil, errRuns
	}
	if frame > 0 {
		return nil, errors.New("only the innermost frame has variables: the others' were not recorded")
	}
	steps := strings.Fields(strings.NewReplacer("->", " ", ".", " ", "[", " [", "]", "] ").Replace(a.Expression))
	var found *node
	for i, step := range steps {
		var among []*node
		if i == 0 {
			for _, scope := range shot.scopes {
				among = append(scope.parts[:len(scope.parts):len(scope.parts)], among...) // locals hide arguments
			}
		} else {
			among = found.parts
		}
		found = nil
		for _, n := range among {
			if found == nil && n.name == step {
				found = n
			}
		}
		if found == nil {
			break
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the snapshot has no %s: it knows the names of its variables, their members and elements, as in a.b[3]", escape.Quote(a.Expression))
	}
	return protocol.EvaluateResponseBody{Result: found.text, VariablesReference: found.ref}, nil
}

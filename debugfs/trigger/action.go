package trigger

import (
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/debugfs/fetch"
)

// action is HANDLER($VARIABLE).NAME(PARAMS): what is done when a variable grows or changes.
type action struct {
	handler  string // onmax or onchange
	variable string
	name     string // save or snapshot
	params   []string

	watched int     // of Spec.vars
	saved   []*term // of save
}

const maxParams = 64

// handlers are the words that may begin an action; onmatch needs synthetic events, of which there
// are none here.
var handlers = []string{"onmax", "onchange", "onmatch"}

func isHandler(s string) bool {
	return slices.ContainsFunc(handlers, func(h string) bool { return strings.HasPrefix(s, h+"(") })
}

// String is the action as the trigger file lists it.
func (a *action) String() string {
	return a.handler + "($" + a.variable + ")." + a.name + "(" + strings.Join(a.params, ",") + ")"
}

// fires is whether the action is due when its variable was old and is now now.
func (a *action) fires(old, now uint64) bool {
	if a.handler == "onmax" {
		return now > old
	}
	return now != old
}

// parseActions reads the handlers as far as that needs no variables.
func (p *histParser) parseActions() error {
	for _, s := range p.handlers {
		handler, rest, _ := strings.Cut(s, "(")
		what, rest, closed := strings.Cut(rest, ")")
		if handler == "onmatch" {
			return p.onmatch(what, rest, closed)
		}
		if !closed {
			return p.complain("NO_CLOSING_PAREN", what)
		}
		a := &action{handler: handler, variable: what}
		if err := p.parseAction(a, rest); err != nil {
			return err
		}
		p.spec.actions = append(p.spec.actions, a)
	}
	return nil
}

// parseAction reads .NAME(PARAMS).
func (p *histParser) parseAction(a *action, s string) error {
	_, call, ok := strings.Cut(s, ".")
	name, params, opened := strings.Cut(call, "(")
	if !ok || !opened {
		return p.complain("ACTION_NOT_FOUND", "")
	}
	a.name = name
	params, _, closed := strings.Cut(params, ")")
	switch {
	case name != "save" && name != "snapshot":
		return p.complain("SYNTH_EVENT_NOT_FOUND", name)
	case !closed:
		return p.complain("NO_CLOSING_PAREN", params)
	case name == "snapshot":
		return nil
	case params == "":
		return p.complain("NO_SAVE_PARAMS", "")
	}
	for param := range strings.SplitSeq(params, ",") {
		param = strings.TrimSpace(param)
		if strings.TrimPrefix(param, "$") == "" {
			return p.complain("INVALID_PARAM", param)
		}
		a.params = append(a.params, param)
	}
	if len(a.params) > maxParams {
		return p.complain("TOO_MANY_PARAMS", "")
	}
	return nil
}

// onmatch is what is wrong with an onmatch handler: all that it can do is to make synthetic events.
func (p *histParser) onmatch(event, rest string, closed bool) error {
	_, _, dotted := strings.Cut(event, ".")
	switch {
	case !closed:
		return p.complain("NO_CLOSING_PAREN", event)
	case !dotted:
		return p.complain("SUBSYS_NOT_FOUND", event)
	}
	_, call, _ := strings.Cut(rest, ".")
	name, params, opened := strings.Cut(call, "(")
	switch {
	case !opened:
		return p.complain("ACTION_NOT_FOUND", "")
	case name == "save", name == "snapshot":
		return p.complain("ACTION_MISMATCH", name)
	case name == "trace":
		name, _, _ = strings.Cut(strings.TrimSuffix(params, ")"), ",")
	}
	return p.complain("SYNTH_EVENT_NOT_FOUND", name)
}

// resolveActions looks up variables and fields of the actions.
func (p *histParser) resolveActions() error {
	seen := map[string]bool{}
	for _, a := range p.spec.actions {
		name, ok := strings.CutPrefix(a.variable, "$")
		if !ok {
			return p.complain("ONX_NOT_VAR", a.variable)
		}
		a.variable = name
		a.watched = p.spec.variable(name)
		switch {
		case a.watched < 0, p.spec.vars[a.watched].isText():
			return p.complain("ONX_VAR_NOT_FOUND", name)
		case seen[a.handler]:
			return p.complain("ONX_VAR_CREATE_FAIL", "")
		case a.name == "save" && seen["save"]:
			return p.complain("TOO_MANY_SAVE_ACTIONS", "")
		}
		seen[a.handler], seen[a.name] = true, true
		if err := p.savedFields(a); err != nil {
			return err
		}
	}
	return nil
}

func (p *histParser) savedFields(a *action) error {
	for _, name := range a.params {
		e := exprParser{histParser: p}
		t, err := e.atom(name, asVar)
		if err != nil || t.op == opConst || t.op == opStack {
			return p.complain("FIELD_VAR_CREATE_FAIL", name)
		}
		a.saved = append(a.saved, t)
	}
	return nil
}

// track is what an action remembers of an entry.
type track struct {
	value uint64
	saved []fetch.Value
}

// act runs the action for an entry whose variables have been set. snapshot is whether it asks for one.
func (a *action) act(t *track, e *entry, s *scene) (snapshot bool) {
	now := e.vars[a.watched].value.U
	if !a.fires(t.value, now) {
		return false
	}
	t.value = now
	t.saved = t.saved[:0]
	for _, field := range a.saved {
		t.saved = append(t.saved, field.value(s))
	}
	return a.name == "snapshot"
}

package trigger

import (
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
)

// action is HANDLER(SUBJECT).NAME(PARAMS): what is done when hits match (onmatch), or when a variable grows
// (onmax) or changes (onchange).
type action struct {
	handler string
	subject string // $VARIABLE; of onmatch SYSTEM.EVENT
	name    string // save, snapshot, trace or a synthetic event
	params  []string

	watched int     // of Spec.vars, unless it is onmatch
	event   string  // the synthetic event
	terms   []*term // what is saved, or the synthetic event's values
}

const maxParams = 64

// handlers are the words that may begin an action.
var handlers = []string{"onmax", "onchange", "onmatch"}

func isHandler(s string) bool {
	return slices.ContainsFunc(handlers, func(h string) bool { return strings.HasPrefix(s, h+"(") })
}

// String is the action as the trigger file lists it.
func (a *action) String() string {
	return a.handler + "(" + a.subject + ")." + a.name + "(" + strings.Join(a.params, ",") + ")"
}

// tracks is whether the action watches a variable.
func (a *action) tracks() bool { return a.handler != "onmatch" }

// traces is whether the action makes a synthetic event.
func (a *action) traces() bool { return a.name != "save" && a.name != "snapshot" }

// fires is whether the action is due when its variable was old and is now now.
func (a *action) fires(old, now uint64) bool {
	switch a.handler {
	case "onmax":
		return now > old
	case "onchange":
		return now != old
	}
	return true
}

// parseActions reads the handlers as far as that needs no variables.
func (p *histParser) parseActions() error {
	for _, s := range p.handlers {
		a := &action{}
		rest, closed := "", false
		a.handler, rest, _ = strings.Cut(s, "(")
		a.subject, rest, closed = strings.Cut(rest, ")")
		if !closed {
			return p.complain("NO_CLOSING_PAREN", a.subject)
		}
		if err := p.parseMatch(a); err != nil {
			return err
		}
		if err := p.parseAction(a, rest); err != nil {
			return err
		}
		p.spec.actions = append(p.spec.actions, a)
	}
	return nil
}

// parseMatch checks the event of onmatch.
func (p *histParser) parseMatch(a *action) error {
	if a.tracks() {
		return nil
	}
	system, event, ok := strings.Cut(a.subject, ".")
	switch {
	case !ok:
		return p.complain("SUBSYS_NOT_FOUND", system)
	case !p.table.host.Exists(system, event):
		return p.complain("INVALID_SUBSYS_EVENT", event)
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
	case !closed:
		return p.complain("NO_CLOSING_PAREN", params)
	case !a.traces() && !a.tracks():
		return p.complain("ACTION_MISMATCH", name)
	case name == "snapshot":
		return nil
	case name == "save" && params == "":
		return p.complain("NO_SAVE_PARAMS", "")
	case params == "":
		return nil
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

// resolveActions looks up variables, fields and synthetic events of the actions.
func (p *histParser) resolveActions() error {
	seen := map[string]bool{}
	for _, a := range p.spec.actions {
		if a.tracks() {
			if err := p.watch(a, seen[a.handler]); err != nil {
				return err
			}
		}
		if a.name == "save" && seen["save"] {
			return p.complain("TOO_MANY_SAVE_ACTIONS", "")
		}
		seen[a.handler], seen[a.name] = true, true
		resolve := p.savedFields
		if a.traces() {
			resolve = p.tracedValues
		}
		if err := resolve(a); err != nil {
			return err
		}
	}
	return nil
}

// watch finds the variable of onmax and onchange, of which there may be one each.
func (p *histParser) watch(a *action, again bool) error {
	name, ok := strings.CutPrefix(a.subject, "$")
	if !ok {
		return p.complain("ONX_NOT_VAR", a.subject)
	}
	a.watched = p.spec.variable(name)
	switch {
	case a.watched < 0, p.spec.vars[a.watched].isText():
		return p.complain("ONX_VAR_NOT_FOUND", name)
	case again:
		return p.complain("ONX_VAR_CREATE_FAIL", "")
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
		a.terms = append(a.terms, t)
	}
	return nil
}

// tracedValues finds the synthetic event and what its fields will be: variables and the event's own fields.
func (p *histParser) tracedValues(a *action) error {
	params := a.params
	a.event = a.name
	if a.name == "trace" && len(params) > 0 {
		a.event, params = params[0], params[1:]
	}
	fields, ok := p.table.host.Synthetic(a.event)
	if !ok {
		return p.complain("SYNTH_EVENT_NOT_FOUND", a.event)
	}
	for i, param := range params {
		t, err := p.param(a, param)
		switch {
		case err != nil:
			return err
		case t.op == opStack, i < len(fields) && t.isText() != isText(fields[i].Type):
			return p.complain("SYNTH_TYPE_MISMATCH", param)
		}
		a.terms = append(a.terms, t)
	}
	if len(params) != len(fields) {
		return p.complain("SYNTH_COUNT_MISMATCH", a.event)
	}
	return nil
}

// param is a value of a synthetic event. A variable without an event's name may be of this histogram, of the
// event that onmatch names, or the only one of its name.
func (p *histParser) param(a *action, s string) (*term, error) {
	e := exprParser{histParser: p}
	name, ok := strings.CutPrefix(s, "$")
	if !ok || p.spec.variable(name) >= 0 {
		return e.atom(s, asVar)
	}
	if system, event, _ := strings.Cut(a.subject, "."); !a.tracks() {
		if t, wrong := p.other(system, event, name); wrong == "" {
			return t, nil
		}
	}
	t, wrong := p.other("", "", name)
	if wrong == "VAR_NOT_FOUND" {
		wrong = "PARAM_NOT_FOUND"
	}
	if wrong != "" {
		return nil, p.complain(wrong, name)
	}
	return t, nil
}

// track is what an action remembers of an entry.
type track struct {
	value uint64
	saved []fetch.Value
}

// effect is what an action asks the Host for.
type effect struct {
	event  string // a synthetic event; "" is a snapshot
	values []fetch.Value
}

// due is whether the action is to be done for an entry whose variables have been set.
func (a *action) due(t *track, e *entry) bool {
	if !a.tracks() {
		return true
	}
	now := e.vars[a.watched].value.U
	if !a.fires(t.value, now) {
		return false
	}
	t.value = now
	return true
}

// values are the action's params now.
func (a *action) values(s *scene) []fetch.Value {
	values := make([]fetch.Value, len(a.terms))
	for i, t := range a.terms {
		values[i] = t.value(s)
	}
	return values
}

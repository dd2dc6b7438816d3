package trigger

import (
	"slices"
	"strings"
)

// histParser reads a hist command into its Spec.
type histParser struct {
	e       Event
	command string // with "hist:", for carets
	table   *Table
	spec    *Spec

	keys, vals, sort, clock string
	assigned                []assignment
	handlers                []string
	building                map[string]bool  // variables whose term is being made
	built                   map[string]*term // and those that have one
}

// assignment is NAME=EXPRESSION.
type assignment struct{ name, text string }

// parseHist reads what stands behind "hist:".
func (t *Trigger) parseHist(rest string, e Event, table *Table) error {
	p := &histParser{e: e, command: t.command, table: table,
		spec: &Spec{Size: DefaultSize}, building: map[string]bool{}, built: map[string]*term{}}
	params, condition := splitFilter(rest)
	for attr := range strings.SplitSeq(params, ":") {
		if err := p.attribute(attr); err != nil {
			return err
		}
	}
	if err := p.assemble(); err != nil {
		return err
	}
	t.Hist = p.spec
	t.paused.Store(p.spec.Pause)
	return t.parseFilter(condition, e)
}

func (p *histParser) complain(id, at string) error { return complain(p.e, p.command, id, at) }

// attribute reads what stands between two colons.
func (p *histParser) attribute(s string) error {
	name, value, assigns := strings.Cut(s, "=")
	if assigns && value == "" {
		return p.complain("EMPTY_ASSIGNMENT", s)
	}
	if !assigns || strings.HasPrefix(s, "on") && strings.Contains(name, "(") {
		return p.word(s)
	}
	ok := true
	switch name {
	case "key", "keys":
		p.keys = value
	case "val", "vals", "values":
		p.vals = value
	case "sort":
		p.sort = value
	case "name":
		p.spec.Name = value
	case "clock":
		p.clock = strings.TrimSpace(value)
	case "size":
		if p.spec.Size, ok = parseSize(value); !ok {
			return p.complain("BAD_SIZE", s)
		}
	default:
		return p.assignments(s)
	}
	return nil
}

// word reads an attribute without '=', or a handler.
func (p *histParser) word(s string) error {
	switch s {
	case "pause":
		p.spec.Pause = true
	case "cont", "continue":
		p.spec.Continue = true
	case "clear":
		p.spec.Clear = true
	case "nohitcount", "NOHC":
		p.spec.NoHitcount = true
	default:
		if !isHandler(s) {
			return p.complain("UNKNOWN_ATTR", s)
		}
		if len(p.handlers) == maxActions {
			return p.complain("TOO_MANY_ACTIONS", s)
		}
		p.handlers = append(p.handlers, s)
	}
	return nil
}

// assignments reads NAME=EXPRESSION[,NAME=EXPRESSION…].
func (p *histParser) assignments(s string) error {
	for one := range strings.SplitSeq(s, ",") {
		name, text, ok := strings.Cut(one, "=")
		switch {
		case !ok || name == "":
			return p.complain("MALFORMED_ASSIGNMENT", one)
		case len(p.assigned) == maxVars:
			return p.complain("TOO_MANY_VARS", one)
		case slices.ContainsFunc(p.assigned, func(a assignment) bool { return a.name == name }):
			return p.complain("DUPLICATE_VAR", one)
		}
		p.assigned = append(p.assigned, assignment{name, text})
	}
	return nil
}

// assemble makes terms of the attributes.
func (p *histParser) assemble() error {
	if p.keys == "" {
		return p.complain("NO_KEYS", "")
	}
	for _, step := range []func() error{p.parseActions, p.makeVals, p.makeVars, p.makeKeys, p.makeSorts,
		p.resolveActions, p.checkClock} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *histParser) makeVals() error {
	hitcount := false
	for text := range strings.SplitSeq(p.vals, ",") {
		if p.vals == "" || text == "hitcount" && !hitcount {
			hitcount = true
			continue
		}
		if len(p.spec.vals) == maxVals {
			return p.complain("TOO_MANY_VALS", text)
		}
		t, err := p.expression(text, asVal)
		if err != nil {
			return err
		}
		switch t.mod {
		case buckets, log2, sym, symOffset, syscallName, stacktrace:
			return p.complain("BAD_FIELD_MODIFIER", text)
		}
		if t.isText() || t.op == opStack {
			return p.complain("INVALID_STR_OPERAND", text)
		}
		p.spec.vals = append(p.spec.vals, t)
	}
	if p.spec.NoHitcount && len(p.spec.vals) == 0 {
		return p.complain("NEED_NOHC_VAL", "")
	}
	return nil
}

func (p *histParser) makeVars() error {
	for _, a := range p.assigned {
		t, err := p.local(a)
		if err != nil {
			return err
		}
		p.spec.vars = append(p.spec.vars, t)
	}
	return nil
}

// local is the term of a variable of this histogram.
func (p *histParser) local(a assignment) (*term, error) {
	if t := p.built[a.name]; t != nil {
		return t, nil
	}
	if p.building[a.name] {
		return nil, p.complain("VAR_NOT_FOUND", a.name)
	}
	p.building[a.name] = true
	t, err := p.expression(a.text, asVar)
	if err != nil {
		return nil, err
	}
	if t.mod == buckets || t.mod == log2 {
		return nil, p.complain("BAD_FIELD_MODIFIER", a.text)
	}
	t.variable = a.name
	p.built[a.name] = t
	return t, nil
}

func (p *histParser) makeKeys() error {
	for text := range strings.SplitSeq(p.keys, ",") {
		if len(p.spec.keys) == maxKeys {
			return p.complain("TOO_MANY_KEYS", text)
		}
		t, err := p.expression(text, asKey)
		if err != nil {
			return err
		}
		if t.refers() {
			return p.complain("INVALID_REF_KEY", text)
		}
		p.spec.keys = append(p.spec.keys, t)
	}
	return nil
}

func (p *histParser) makeSorts() error {
	if p.sort == "" {
		p.spec.sorts = []sortKey{{}}
		return nil
	}
	fields := strings.Split(p.sort, ",")
	for i, text := range fields {
		name, order, ordered := strings.Cut(text, ".")
		switch {
		case text == "" || name == "":
			return p.complain("EMPTY_SORT_FIELD", "sort=")
		case i == maxSorts-1 && len(fields) > maxSorts:
			return p.complain("TOO_MANY_SORT_FIELDS", "sort=")
		}
		k := sortKey{descending: order == "descending"}
		if name != "hitcount" {
			all := slices.Concat(p.spec.vals, p.spec.keys)
			at := slices.IndexFunc(all, func(t *term) bool { return t.label() == name })
			if at < 0 {
				return p.complain("INVALID_SORT_FIELD", name)
			}
			k.by = all[at]
		}
		if ordered && order != "descending" && order != "ascending" {
			return p.complain("INVALID_SORT_MODIFIER", order)
		}
		p.spec.sorts = append(p.spec.sorts, k)
	}
	return nil
}

// checkClock accepts the names of clocks that are the one of all events here, CLOCK_MONOTONIC.
func (p *histParser) checkClock() error {
	p.spec.clock = p.clock
	switch p.clock {
	case "":
		p.spec.clock = "global"
	case "local", "global", "mono":
	default:
		return p.complain("SET_CLOCK_FAIL", p.clock)
	}
	return nil
}

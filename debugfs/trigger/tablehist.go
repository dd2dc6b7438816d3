package trigger

import (
	"maps"
	"slices"
)

// writeHist adds a histogram, or pauses, continues or clears the one that is like it.
func (s *Set) writeHist(t, old *Trigger) error {
	h := t.Hist
	switch {
	case old != nil && h.Pause:
		old.paused.Store(true)
		return nil
	case old != nil && h.Continue:
		old.paused.Store(false)
		return nil
	case old != nil && h.Clear:
		old.table.Clear()
		return nil
	case old != nil:
		return s.complain(t, "TRIGGER_EEXIST", "")
	case h.Continue || h.Clear:
		return s.complain(t, "TRIGGER_ENOENT_CLEAR", "")
	}
	if name := s.defined(h); name != "" {
		return s.complain(t, "DUPLICATE_VAR", name+"=")
	}
	t.table = s.table.named(h.Name)
	switch {
	case t.table == nil:
		t.table = NewHist(h)
	case !t.table.spec.shares(h):
		return s.complain(t, "NAMED_MISMATCH", "name="+h.Name)
	}
	return s.add(t)
}

// defined is a variable of h that another histogram of the event has, or "".
func (s *Set) defined(h *Spec) string {
	for _, t := range s.triggers() {
		if t.Kind != Histogram {
			continue
		}
		for _, v := range h.vars {
			if t.Hist.variable(v.variable) >= 0 {
				return v.variable
			}
		}
	}
	return ""
}

// variable is the index of a variable, or -1.
func (s *Spec) variable(name string) int {
	return slices.IndexFunc(s.vars, func(t *term) bool { return t.variable == name })
}

// shares is whether hits of both may be counted in one histogram.
func (s *Spec) shares(o *Spec) bool {
	return s.same(o) && slices.EqualFunc(s.keys, o.keys, func(a, b *term) bool { return a.typ == b.typ })
}

// named is the histogram of that name, nil if there is none.
func (t *Table) named(name string) (h *Hist) {
	if name == "" {
		return nil
	}
	t.histograms(func(_ Event, tr *Trigger) {
		if tr.Hist.Name == name {
			h = tr.table
		}
	})
	return h
}

// refers is whether another histogram uses variables of h.
func (t *Table) refers(h *Hist) (used bool) {
	if h == nil {
		return false
	}
	t.histograms(func(_ Event, tr *Trigger) {
		used = used || slices.ContainsFunc(tr.Hist.refs, func(r reference) bool { return r.table == h })
	})
	return used
}

// Makes is whether a histogram makes the synthetic event happen: it can't be deleted then (EBUSY).
func (t *Table) Makes(event string) (makes bool) {
	t.histograms(func(_ Event, tr *Trigger) {
		makes = makes || slices.ContainsFunc(tr.Hist.actions, func(a *action) bool { return a.traces() && a.event == event })
	})
	return makes
}

// find looks for a variable of a histogram that is there; without a system, all events but one must have none.
// wrong is what error_log says, by its id; "" if it was found.
func (t *Table) find(system, event, name string) (v variable, wrong string) {
	found := map[id]variable{}
	t.histograms(func(e Event, tr *Trigger) {
		at := tr.Hist.variable(name)
		if at >= 0 && (system == "" || system == e.System && event == e.Name) {
			found[id{e.System, e.Name}] = variable{tr.table, at}
		}
	})
	if len(found) > 1 {
		return variable{}, "VAR_NOT_UNIQUE"
	}
	for v = range maps.Values(found) {
		return v, ""
	}
	return variable{}, "VAR_NOT_FOUND"
}

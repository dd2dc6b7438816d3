package trigger

// Hit fires the event's triggers. after is to be called when the event has been recorded, if it is;
// nil: nothing waits for that. Triggers fire whether the event is recorded or not.
func (s *Set) Hit(h *Hit) (after func()) {
	var waiting []*Trigger
	for _, t := range s.triggers() {
		switch {
		case t.paused.Load(), t.Filter != nil && !t.Filter.Match(h.Values):
		case t.Kind == TraceOff, t.Kind == Stacktrace:
			waiting = append(waiting, t)
		default:
			s.table.fire(t, h)
		}
	}
	if waiting == nil {
		return nil
	}
	return func() {
		for _, t := range waiting {
			s.table.fire(t, h)
		}
	}
}

// Lose counts hits of the event of which nothing is known but that they were: its histograms have dropped them.
func (s *Set) Lose(n uint64) {
	for _, t := range s.triggers() {
		if t.Kind == Histogram && !t.paused.Load() && n > 0 {
			t.table.lose(n)
		}
	}
}

// maxDepth bounds how synthetic events make each other happen.
const maxDepth = 8

// fire does what the trigger is for. What changes nothing doesn't count.
func (t *Table) fire(tr *Trigger, h *Hit) {
	if tr.Kind == Histogram {
		for _, e := range tr.table.add(tr.Hist, h) {
			if e.event == "" {
				t.host.Snapshot()
			} else if h.Depth < maxDepth {
				t.host.Synthesize(e.event, e.values, h)
			}
		}
		return
	}
	if !tr.take() {
		return
	}
	changed := true
	switch tr.Kind {
	case TraceOn, TraceOff:
		changed = t.host.Tracing(tr.Kind.enables())
	case Snapshot:
		t.host.Snapshot()
	case Stacktrace:
		t.host.Stack(h)
	case EnableEvent, DisableEvent:
		changed = t.host.Enable(tr.System, tr.Event, tr.Kind.enables())
	case EnableHist, DisableHist:
		t.pause(id{tr.System, tr.Event}, !tr.Kind.enables())
	}
	if !changed {
		tr.giveBack()
	}
}

// pause pauses or continues all histograms of an event.
func (t *Table) pause(e id, paused bool) {
	s, ok := t.sets.Load(e)
	if !ok {
		return
	}
	for _, tr := range s.(*Set).triggers() {
		if tr.Kind == Histogram {
			tr.paused.Store(paused)
		}
	}
}

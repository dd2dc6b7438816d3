package trigger

import "slices"

// NeedsStack is whether a trigger of the event wants to know the stack: hits must have it then.
func (s *Set) NeedsStack() bool {
	return slices.ContainsFunc(s.triggers(), func(t *Trigger) bool {
		return t.Kind == Stacktrace || t.Kind == Histogram && t.Hist.NeedsStack()
	})
}

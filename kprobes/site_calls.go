package kprobes

import "slices"

// siteCalls is what a site is to calls that are followed: to those of the function that begins there, and to those that return there. The site is armed
// while some are to return there, or an unwinder is entered, though no probe is enabled.
//
// The Kretprobes whose calls return there are counted by what is to be done then: the tracer has to see it (traced), their Programs run in the target
// (recorders), or only the end is noted. Each begins and ends once, so that the three agree; a jump at the site is made for them.
type siteCalls struct {
	returning int          // Kretprobes whose calls return there
	traced    int          // those of them whose handlers run in the tracer
	recorders []*Kretprobe // those of them whose Programs run in the target. The slice is replaced, never changed
	recounted uint64       // how often these have changed
	fromGo    bool         // some of these calls were made in Go

	inGo      bool  // for a Kretprobe: the function that begins there is one of Go's
	looksBack *bool // whether that may use its own return address; nil if nobody has asked
	unwinds   bool  // the target's own unwinder is entered there (return_unwinders.go)
}

// any tells whether calls return there.
func (c *siteCalls) any() bool { return c.returning > 0 }

// none tells that the site is nothing to calls that are followed, but where they begin.
func (c *siteCalls) none() bool {
	return !c.any() && c.traced == 0 && len(c.recorders) == 0 && !c.unwinds
}

// begin: calls of rp return there from now on. The answer says whether a jump that is there does not do what they need.
func (c *siteCalls) begin(rp *Kretprobe) (outdated bool) {
	c.returning++
	switch {
	case rp.needsTracer() != "":
		c.traced++
	case rp.timed():
		c.recorders = append(c.without(rp), rp)
	default:
		return false
	}
	return true
}

// end: calls of rp return there no longer.
func (c *siteCalls) end(rp *Kretprobe) {
	c.returning--
	switch {
	case rp.needsTracer() != "":
		c.traced--
	case rp.timed():
		c.recorders = c.without(rp)
	}
}

// without is the recorders but rp, which are about to change.
func (c *siteCalls) without(rp *Kretprobe) []*Kretprobe {
	c.recounted++
	return slices.DeleteFunc(slices.Clone(c.recorders), func(o *Kretprobe) bool { return o == rp })
}

// awaiting calls do, for which a call is about to return there.
func (c *siteCalls) awaiting(do func() error) error {
	c.returning++
	defer func() { c.returning-- }()
	return do()
}

// needTracer says why the tracer is to see the returns there.
func (c *siteCalls) needTracer() string {
	switch {
	case c.traced > 0:
		return "calls that are followed return there"
	case c.any() && c.fromGo:
		return "goroutines' calls are followed by the tracer"
	}
	return ""
}

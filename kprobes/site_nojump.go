package kprobes

// noJump is why a site has no jump. What refuses one for good stays, whatever else comes in between: then that is why for a while.
type noJump struct {
	why     string // now; empty if nothing is in the way
	forGood string // empty if a change may bring a jump
}

// now: why is in the way; empty if nothing is.
func (n *noJump) now(why string) { n.why = why }

// ever: why will always be in the way.
func (n *noJump) ever(why string) { n.why, n.forGood = why, why }

// rejected tells that it is for good.
func (n *noJump) rejected() bool { return n.forGood != "" }

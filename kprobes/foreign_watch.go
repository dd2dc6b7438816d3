package kprobes

import (
	"sync/atomic"
	"time"
)

// besideWatch is a session's looks at code that others may write into.
type besideWatch struct {
	s    *Session
	on   bool // the code is looked at now and then
	soon bool // and will be at once

	toldShared    bool
	toldDisturbed bool // that somebody writes into code at probes
	toldCopied    bool // that the program has copied our bytes

	disturbances atomic.Uint64 // by others
}

// begin begins to look at the code now and then, as long as there are patches.
func (bw *besideWatch) begin() {
	if !bw.on && !bw.s.closed {
		bw.on = true
		time.AfterFunc(besideInterval, bw.again)
	}
}

func (bw *besideWatch) again() {
	var next time.Duration
	if bw.s.doApart(func() error { next = bw.look(); return nil }) == nil && next > 0 {
		time.AfterFunc(next, bw.again)
	}
}

// look looks once, and tells when to look again; 0 if there is nothing to look at.
func (bw *besideWatch) look() (next time.Duration) {
	began, patched := time.Now(), false
	bw.s.heirs.outlived()
	for d := range bw.s.domains {
		if d.released || d.linker.busy {
			patched = patched || d.linker.busy
			continue
		}
		patched = d.neighbours.lookBeside() || patched
	}
	if bw.on = patched; !patched {
		return 0
	}
	return max(besideInterval, besideShare*time.Since(began))
}

// now looks at the code as soon as the tracer is done with what it does.
func (bw *besideWatch) now() {
	if !bw.soon {
		bw.soon = true
		go func() { _ = bw.s.do(func() error { bw.soon = false; bw.look(); return nil }) }()
	}
}

// Disturbances is how often others, such as kernel uprobes, have changed the code at probes. Each of these was armed again, or told of.
func (s *Session) Disturbances() uint64 { return s.beside.disturbances.Load() }

// besideInterval is how often code is looked at, unless that takes more than a small share of the time.
const (
	besideInterval = 5 * time.Millisecond
	besideShare    = 100
)

package trace

import (
	"sync"
	"time"
)

// Pace bounds how many hits a second are handed on. Probes may share one; its methods may be called from any goroutine. NewPace makes a Pace.
type Pace struct {
	most int

	mu     sync.Mutex
	second int64 // since 1970, which is being counted
	n      int   // hits in it
	over   uint64
}

// NewPace is for n hits a second, which must be more than 0.
func NewPace(n int) *Pace { return &Pace{most: n} }

// Most is how many hits a second are handed on.
func (p *Pace) Most() int { return p.most }

// At wants no more hits a second than the pace allows, by the times of the hits. Further ones are counted (Stats.Hits, Pace.Over), and not handed on; they do not
// count against Limit.
func At(p *Pace) Want { return func(w *wanted) { w.pace = p } }

// Over is how many hits were not handed on.
func (p *Pace) Over() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// allows takes one hit. Hits of several threads come nearly in order: an older one counts in the second that has begun.
func (p *Pace) allows(at time.Time) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	const late = 5 // seconds; what is older tells that the clock was set back
	if s := at.Unix(); s > p.second || s < p.second-late {
		p.second, p.n = s, 0
	}
	if p.n >= p.most {
		p.over++
		return false
	}
	p.n++
	return true
}

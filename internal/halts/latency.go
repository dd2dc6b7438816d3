package halts

import "slices"

// Latency estimates how long it takes to let a thread go and to learn that it is held again, if it runs nothing in between. The zero Latency
// knows nothing.
//
// A machine that has other work makes it longer at any time, and never shorter. So what it is at the least is known well; from that, and from nothing
// more, follows what a call can have taken at the most.
type Latency struct {
	samples []uint64
	next    int    // that is replaced
	least   uint64 // time that a thread has run between two halts; 0 if none has
}

const (
	few    = 3  // samples, from which on there is an estimate
	enough = 15 // samples, of which it is made: the latest count
)

// Sample tells how long it took, once.
func (l *Latency) Sample(ticks uint64) {
	l.Ran(ticks)
	if len(l.samples) < enough {
		l.samples = append(l.samples, ticks)
		return
	}
	l.samples[l.next] = ticks
	l.next = (l.next + 1) % enough
}

// Ran tells of a time that a thread has run between two halts: it is not longer.
func (l *Latency) Ran(ticks uint64) {
	if l.least == 0 || ticks < l.least {
		l.least = ticks
	}
}

// Known tells whether there is an estimate.
func (l *Latency) Known() bool { return len(l.samples) >= few }

// Sure tells that more samples would not make it much better.
func (l *Latency) Sure() bool { return len(l.samples) == enough }

// Range is what is believed of a number of ticks.
type Range struct {
	Min uint64 // it is seldom less
	Max uint64 // it is not more
}

// estimate is the least that it is, what it is not above in nine cases of ten, and the most of the samples. Without samples that is anything from
// nothing to the shortest time that a thread has run, or to limit if none has.
func (l *Latency) estimate(limit uint64) (least, high, most uint64) {
	switch {
	case l.Known():
		s := slices.Sorted(slices.Values(l.samples))
		return l.least, s[len(s)-1-len(s)/10], s[len(s)-1]
	case l.least != 0:
		return 0, l.least, l.least
	}
	return 0, limit, limit
}

// Latencies are those of each Kind.
type Latencies [kinds]Latency

// Took is how long a call has taken that lasted for so many ticks, with halts that come to in. What the halts cost is taken off, and nothing is claimed to be
// shorter than what their cost differs by.
func (ls *Latencies) Took(lasted uint64, in Sum) Range {
	run := less(lasted, in.Held)
	r := Range{run, run}
	var differs uint64
	for k, n := range in.Ends {
		least, high, most := ls[k].estimate(run)
		whole, odd := n/2, n%2 // which half costs more is not known
		r.Min = less(r.Min, (whole+odd)*most)
		r.Max = less(r.Max, whole*least)
		differs += (whole + odd) * less(high, least)
	}
	_, _, most := ls[Stopped].estimate(run)
	r.Min = less(r.Min, in.Idle+(in.IdleEnds+1)/2*most)
	r.Max = max(r.Max, min(run, differs))
	return r
}

// less is a-b, 0 if that is negative.
func less(a, b uint64) uint64 { return a - min(a, b) }

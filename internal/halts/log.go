// Package halts tells how long a call has taken, if its thread was held for us meanwhile: what is known of the time in which it was held, and
// what is estimated of the time that being held and let go costs beside that. All times are ticks of one clock.
package halts

import "sort"

// Kind is how a thread is held.
type Kind uint8

const (
	Stopped Kind = iota // by a ptrace-stop
	Spun                // it spins for an answer
	kinds
)

// Sum is what halts come to.
type Sum struct {
	Halts int
	Held  uint64        // ticks in which the thread was held, and would have run
	Ends  [kinds]uint64 // beginnings and ends, each of which costs half a Latency
	// A thread that waits in a system call may go on waiting while it is held: so many ticks, and ends, may have cost it nothing.
	Idle     uint64
	IdleEnds uint64
}

// Plus is both together.
func (s Sum) Plus(o Sum) Sum {
	s.Halts, s.Held, s.Idle, s.IdleEnds = s.Halts+o.Halts, s.Held+o.Held, s.Idle+o.Idle, s.IdleEnds+o.IdleEnds
	for k := range s.Ends {
		s.Ends[k] += o.Ends[k]
	}
	return s
}

func (s Sum) minus(o Sum) Sum {
	s.Halts, s.Held, s.Idle, s.IdleEnds = s.Halts-o.Halts, s.Held-o.Held, s.Idle-o.Idle, s.IdleEnds-o.IdleEnds
	for k := range s.Ends {
		s.Ends[k] -= o.Ends[k]
	}
	return s
}

// halt is one time in which a thread was held.
type halt struct {
	from, to uint64 // to is 0 while it lasts
	kind     Kind
	idle     bool
	before   Sum // of all before it, of the thread
}

// sum is what the halt comes to in a call that lasts from began to ended, which overlap it.
func (h *halt) sum(began, ended uint64) Sum {
	s := Sum{Halts: 1}
	held, ends := min(h.end(), ended)-max(h.from, began), uint64(0)
	if h.from > began {
		ends++
	}
	if h.end() < ended {
		ends++
	}
	if h.idle {
		s.Idle, s.IdleEnds = held, ends
	} else {
		s.Held, s.Ends[h.kind] = held, ends
	}
	return s
}

func (h *halt) all() Sum { return h.sum(0, ^uint64(0)) }

func (h *halt) end() uint64 {
	if h.to == 0 {
		return ^uint64(0) - 1
	}
	return h.to
}

// most is how many halts a Log keeps.
const most = 256

// Log is the halts of one thread. It keeps the latest, and of older ones ever fewer; what those come to is exact still, and only their times are
// not known. The zero Log is empty. It is for one goroutine.
type Log struct{ halts []halt }

// Stop tells that the thread is held from now on; again, that it is held in another way.
func (l *Log) Stop(now uint64, k Kind) {
	var before Sum
	if n := len(l.halts); n > 0 {
		last := &l.halts[n-1]
		if last.to == 0 {
			last.kind = k
			return
		}
		before = last.before.Plus(last.all())
	}
	if len(l.halts) == most {
		l.thin()
	}
	l.halts = append(l.halts, halt{from: now, kind: k, before: before})
}

// Waits tells of a thread that is held that it waits in a system call.
func (l *Log) Waits() {
	if l.Holds() {
		l.halts[len(l.halts)-1].idle = true
	}
}

// Resume tells that the thread runs from now on. It does nothing if the thread is not held.
func (l *Log) Resume(now uint64) {
	if l.Holds() {
		last := &l.halts[len(l.halts)-1]
		last.to = max(now, last.from+1)
	}
}

// Holds tells whether the thread is held.
func (l *Log) Holds() bool { n := len(l.halts); return n > 0 && l.halts[n-1].to == 0 }

// Count is how many halts there were.
func (l *Log) Count() int {
	if len(l.halts) == 0 {
		return 0
	}
	return l.halts[len(l.halts)-1].before.Halts + 1
}

// Gap is how long the thread, which is held, has run before that; ok is false if it was never held before, or in another way.
func (l *Log) Gap() (ticks uint64, k Kind, ok bool) {
	n := len(l.halts)
	if n < 2 || !l.Holds() || l.halts[n-1].kind != l.halts[n-2].kind {
		return 0, 0, false
	}
	return l.halts[n-1].from - l.halts[n-2].to, l.halts[n-1].kind, true
}

// Join makes the halt that lasts one with that before it: the thread has run nothing of its own in between.
func (l *Log) Join() {
	if n := len(l.halts); n > 1 && l.Holds() {
		l.halts = l.halts[:n-1]
		l.halts[n-2].to = 0
	}
}

// thin forgets every second one of the older half.
func (l *Log) thin() {
	kept := l.halts[:0]
	for i, h := range l.halts {
		if i%2 == 0 || i >= most/2 {
			kept = append(kept, h)
		}
	}
	l.halts = kept
}

// Within is what the thread's halts come to in a call. Of halts that may have been before it or in it, their time is Idle.
func (l *Log) Within(began, ended uint64) (s Sum) {
	if l == nil || ended <= began {
		return s
	}
	first := sort.Search(len(l.halts), func(i int) bool { return l.halts[i].end() > began })
	for i := first; i < len(l.halts) && l.halts[i].from < ended; i++ {
		h := &l.halts[i]
		if i > 0 {
			last := &l.halts[i-1]
			forgotten := h.before.minus(last.before.Plus(last.all()))
			if i == first {
				forgotten = forgotten.idle()
			}
			s = s.Plus(forgotten)
		}
		s = s.Plus(h.sum(began, ended))
	}
	return s
}

// idle is s of halts that may have cost nothing.
func (s Sum) idle() Sum {
	all := Sum{Halts: s.Halts, Idle: s.Idle + s.Held, IdleEnds: s.IdleEnds}
	for _, n := range s.Ends {
		all.IdleEnds += n
	}
	return all
}

// At is what the halt that lasts at a time comes to in a call.
func (l *Log) At(now, began, ended uint64) (s Sum) {
	for i := len(l.halts) - 1; i >= 0; i-- {
		if h := &l.halts[i]; h.from <= now && now < h.end() {
			return h.sum(began, ended)
		}
	}
	return s
}

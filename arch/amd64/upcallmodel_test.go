package amd64_test

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// The model of an upcall: two threads that hit once each, one mailbox, and a tracer. Every
// step is one access to what they share. All interleavings are enumerated, with every choice
// that a side has: how long a thread is patient, when the tracer looks, how it answers,
// and when it dies.
type model struct {
	thread  [2]modelThread
	looking bool
	box     arch.BoxState
	content int // whose registers are in the mailbox; +10 when handled
	tracer  tracerAt
	dead    bool
	handled [2]int
}

type modelThread uint8

const (
	atSite modelThread = iota
	claims
	fills
	posts
	spins
	takesBack
	frees // declined
	loads
	leaves   // loaded, and frees the mailbox
	waits    // stopped at Waits
	traps    // stopped at Traps
	goneOn   // past the hit
	survived // the same, without a tracer
)

type tracerAt uint8

const (
	looksAround tracerAt = iota
	takes                // it saw a posted mailbox
	handles              // it has taken one
	answers              // handlers have run
)

func (m model) with(i int, at modelThread) model {
	m.thread[i] = at
	return m
}

// steps is where thread i may go.
func (m model) steps(t *testing.T, i int) []model {
	switch next := m; m.thread[i] {
	case atSite:
		if m.looking {
			return []model{m.with(i, claims)}
		}
		return []model{m.with(i, traps)}
	case claims:
		if m.box != arch.BoxFree {
			return []model{m.with(i, traps)}
		}
		next.box = arch.BoxClaimed
		return []model{next.with(i, fills)}
	case fills:
		next.content = i
		return []model{next.with(i, posts)}
	case posts:
		next.box = arch.BoxPosted
		return []model{next.with(i, spins)}
	case spins:
		return m.spin(i)
	case takesBack:
		switch m.box {
		case arch.BoxPosted:
			next.box = arch.BoxFree
			return []model{next.with(i, traps)}
		case arch.BoxTaken:
			return []model{m.with(i, waits)}
		}
		return []model{m.with(i, spins)}
	case frees:
		next.box = arch.BoxFree
		return []model{next.with(i, traps)}
	case loads:
		if m.content != i+10 {
			t.Fatalf("thread %d loads what it should not: %+v", i, m)
		}
		return []model{m.with(i, leaves)}
	case leaves:
		next.box = arch.BoxFree
		return []model{next.with(i, goneOn)}
	case waits:
		if m.dead { // the guard sends it on behind the breakpoint
			next.box = arch.BoxFree
			return []model{next.with(i, traps)}
		}
	case traps:
		if m.dead {
			return []model{m.with(i, survived)}
		}
	}
	return nil
}

func (m model) spin(i int) []model {
	switch m.box {
	case arch.BoxAnswered:
		return []model{m.with(i, loads)}
	case arch.BoxCalled:
		return []model{m.with(i, waits)}
	case arch.BoxDeclined:
		return []model{m.with(i, frees)}
	}
	return []model{m.with(i, takesBack)} // or it spins, which changes nothing
}

// tracerSteps is what the tracer may do.
func (m model) tracerSteps(t *testing.T) (all []model) {
	if m.dead {
		return nil
	}
	died := m
	died.dead = true
	all = append(all, died)
	next := m
	switch m.tracer {
	case looksAround:
		next.looking = !m.looking
		all = append(all, next)
		if m.box == arch.BoxPosted {
			next = m
			next.tracer = takes
			all = append(all, next)
		}
		for i := range m.thread {
			all = append(all, m.stops(t, i)...)
		}
	case takes:
		next.tracer = looksAround
		if m.box == arch.BoxPosted {
			next.box, next.tracer = arch.BoxTaken, handles
		}
		all = append(all, next)
	case handles:
		declined := m
		declined.box, declined.tracer = arch.BoxDeclined, looksAround
		next.handled[m.content]++
		next.content += 10
		next.tracer = answers
		all = append(all, declined, next)
	case answers:
		for _, s := range []arch.BoxState{arch.BoxAnswered, arch.BoxCalled} {
			next.box, next.tracer = s, looksAround
			all = append(all, next)
		}
	}
	return all
}

// stops deals with thread i, if it is stopped.
func (m model) stops(t *testing.T, i int) []model {
	next := m.with(i, goneOn)
	switch m.thread[i] {
	case traps:
		next.handled[i]++
	case waits:
		switch {
		case m.box == arch.BoxDeclined && m.content == i:
			next.handled[i]++
		case m.box != arch.BoxAnswered && m.box != arch.BoxCalled, m.content != i+10:
			t.Fatalf("thread %d waits for nothing: %+v", i, m)
		}
		next.box = arch.BoxFree
	default:
		return nil
	}
	return []model{next}
}

// ended checks a state that nothing leads out of but the tracer's choice to look.
func (m model) ended(t *testing.T) {
	for i := range m.thread {
		switch {
		case m.thread[i] == goneOn && m.handled[i] != 1:
			t.Fatalf("a hit was handled %d times: %+v", m.handled[i], m)
		case m.thread[i] == survived && (!m.dead || m.handled[i] > 1):
			t.Fatalf("a hit without a tracer was handled %d times: %+v", m.handled[i], m)
		case m.thread[i] != goneOn && m.thread[i] != survived:
			t.Fatalf("thread %d is stuck: %+v", i, m)
		}
	}
	if m.box != arch.BoxFree && !m.dead {
		t.Fatalf("the mailbox is left: %+v", m)
	}
}

func TestUpcallProtocolInEveryOrder(t *testing.T) {
	seen := map[model]bool{}
	ends := 0
	for queue := []model{{}}; len(queue) > 0; {
		m := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[m] {
			continue
		}
		seen[m] = true
		own := append(m.steps(t, 0), m.steps(t, 1)...)
		if idle := m.tracer == looksAround && len(m.stops(t, 0))+len(m.stops(t, 1)) == 0; len(own) == 0 && (m.dead || idle) {
			m.ended(t)
			ends++
		}
		queue = append(append(queue, own...), m.tracerSteps(t)...)
	}
	if ends == 0 {
		t.Error("nothing ever ends")
	}
	t.Logf("%d states, %d ends", len(seen), ends)
}

package kprobes

import (
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/halts"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// How long calls take. Where the target notes both ends itself, the time is what it is. Where the thread is held at an end, or in between for
// another probe, most of the time may be ours:
//
//	entry: int3 ──> learnt of ── held ──> let go ──> runs … int3 ──> learnt of ── held ──> …
//	          half a latency               half a latency     half a latency
//
// When a thread was held is known (ptrace.Thread.Halts), and is taken away. The latency can't be seen: the kernel wakes the thread, the
// processor enters it, the trap is delivered, and the tracer is woken. It is measured on the same thread, in the same loop, with
// the same load (sample). The least that it was is taken away, since a machine with other work makes it only longer. What is left is the call's own
// time, as exact as the latency is regular: Took.Min tells how exact.

// Took is how long a call has taken, from its entry to its return.
type Took struct {
	// Time is the call's own, as far as can be told: what was measured, without what stops have cost at the least. It is never negative.
	Time time.Duration
	// Stops is how often the call's thread was held for the session in that time, also by other probes. It is 0 if the target has measured by
	// itself, and 2 if its thread has stopped at both ends.
	Stops int
	// Min tells how exact Time is: the truth is not above Time, and seldom below Min. If Min is 0 the call's own time can't be told from the cost of the
	// stops. Without stops it is Time.
	Min time.Duration
}

// Took is how long the call has taken. It is for the Handler.
func (ri *KretprobeInstance) Took() Took {
	if ri.last == nil {
		return Took{}
	}
	s := ri.domain.session
	_, took := s.took(ri.ended-ri.began, ri.halts())
	return took
}

// Took is how long a call has taken whose Program has found so many ticks in the register duration and written r. It is for the RecordHandler.
func (s *Session) Took(r *HitRecord, ticks uint64) Took {
	if r.took != nil {
		return *r.took
	}
	_, took := s.took(ticks, r.halts.Within(r.ended-ticks, r.ended))
	return took
}

func (s *Session) took(lasted uint64, in halts.Sum) (ticks uint64, t Took) {
	r := s.tracer.Latencies().Took(lasted, in)
	clock, _ := s.records.clock()
	return r.Max, Took{Time: clock.Duration(r.Max), Stops: in.Halts, Min: clock.Duration(r.Min)}
}

// enters notes when a call begins on a thread that is held.
func (ri *KretprobeInstance) enters(th *ptrace.Thread) { ri.began, ri.first = host.Ticks(), th.Halts() }

// returns notes when it ends.
func (ri *KretprobeInstance) returns(th *ptrace.Thread) { ri.ended, ri.last = host.Ticks(), th.Halts() }

// halts is what its threads' halts come to in the call. Where a thread has entered and another one returns (a goroutine, a coroutine),
// those between may have been of other calls.
func (ri *KretprobeInstance) halts() halts.Sum {
	if ri.first != nil && ri.first != ri.last {
		return ri.first.At(ri.began, ri.began, ri.ended).Plus(ri.last.At(ri.ended, ri.began, ri.ended))
	}
	return ri.earlier.Plus(ri.last.Within(ri.began, ri.ended))
}

// halted is what the halts of the call come to so far.
func (ri *KretprobeInstance) halted() halts.Sum {
	return ri.earlier.Plus(ri.first.Within(ri.began, host.Ticks()))
}

// resample is after how many hits that time calls the latency is measured anew.
const resample = 64

// samples tells whether the latency is to be measured at a hit of st. Threads that the program steps itself are left alone, and so are instructions
// behind which the thread does not come to the slot's end.
func (hs *hits) samples(ts *threadState, st *site, regs arch.Regs) bool {
	if ts.outer != nil || st.plan.Leaves || regs.TrapFlag() || !st.times() {
		return false
	}
	if hs.untilSample--; hs.untilSample > 0 && hs.latency().Sure() {
		return false
	}
	hs.untilSample = resample
	return true
}

// times tells whether calls are timed there.
func (st *site) times() bool {
	if st.calls.any() {
		return true
	}
	for _, kp := range st.probes {
		if kp.ret != nil && kp.enabled() {
			return true
		}
	}
	return false
}

func (hs *hits) latency() *halts.Latency { return &hs.s.tracer.Latencies()[halts.Stopped] }

// sample measures the latency of a thread that has come to the end of its copy: it is to be sent to the breakpoint there again, so it runs nothing.
// more tells that it is. All that belongs to the hit's own halt, as if the thread had not been let go.
func (hs *hits) sample(th *ptrace.Thread, ts *threadState) (more bool) {
	log := th.Halts()
	alone := log.Count() == ts.sampled+1 // nothing else has stopped it
	again := ts.sampling
	ts.sampling = notSampling
	if !alone || !log.Holds() {
		return false
	}
	if ran, k, ok := log.Gap(); again == atEnd && ok && k == halts.Stopped {
		hs.latency().Sample(ran)
	}
	log.Join()
	if again == atEnd && hs.latency().Known() {
		return false
	}
	ts.sampling = atEnd
	return true
}

// sampling is whether a thread is sent to the end of a copy to measure the latency.
type sampling uint8

const (
	notSampling sampling = iota
	inCopy               // it executes the copy first
	atEnd                // it executes nothing but the breakpoint
)

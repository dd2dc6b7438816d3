package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/halts"
	"github.com/gokprobe/gokprobe/internal/host"
)

// How long threads are held. A thread is held from the moment when its stop is learnt of to the one when it is let go. What it does for us in
// between, system calls and a function that a Handler calls, belongs to that. A delay does not: the program is meant to feel it.

// Halts is when the thread was held. It is for the tracer's thread.
func (th *Thread) Halts() *halts.Log { return &th.halts }

// Latencies is what is known of the time beside: from letting a thread go to learning that it has stopped again. It is for the tracer's thread.
func (t *Tracer) Latencies() *halts.Latencies { return &t.latencies }

// noteHalt tells of a stop. begins is false if the thread was held already.
func (th *Thread) noteHalt(s Stop) (begins bool) {
	if th.delayed != nil { // it makes system calls for us meanwhile
		return false
	}
	begins = !th.halts.Holds()
	th.halts.Stop(host.Ticks(), halts.Stopped)
	if begins && s.Reason == Signal && s.Signal == unix.SIGTRAP { // behind an instruction of its own
		if ran, k, ok := th.halts.Gap(); ok {
			th.Proc.tracer.latencies[k].Ran(ran)
		}
	}
	return begins
}

// noteLetGo tells that the thread is about to run on its own account.
func (th *Thread) noteLetGo() {
	if !th.at.errand.on && th.call == nil {
		th.halts.Resume(host.Ticks())
	}
}

package kprobes

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// threadState is what a session remembers of a thread.
type threadState struct {
	regs     Regs
	hit      uint64       // its number, while handlers run
	site     *site        // of the hit in progress: between trap and resume, or until its end is seen
	phase    phase        // which handlers run
	traps    bool         // the program traced itself when its copy was single-stepped
	call     *site        // whose system call the thread was last sent into
	put      *site        // whose hit goes on behind a signal that came first, or a mended fault
	before   arch.Regs    // and the registers there
	start    arch.Regs    // in front of an instruction whose copy is single-stepped
	leaving  *detour      // that it is to leave for a signal which waits
	box      arch.Mailbox // that its registers are in, while it spins
	noted    bool         // and perhaps a word of its stack, which no handler has changed yet
	detour   *detour      // whose breakpoint has brought it here, while handlers run
	entering *detour      // whose body the program, which traces itself, steps through
	late     arch.Addr    // a jump's byte raised its signal there, and is gone
	number   int          // of the system call that a SyscallProbe's handlers are about
	changed  uint64       // the hit in which one has changed a call that is to be made: the others are asked about it as well
	sampling sampling     // it is sent to the end of its copy to see how long that takes
	sampled  int          // its halts before
	chosen   *Kprobe      // whose Program has run in the target, and wants the handler to run
	declined *site        // whose FaultHandlers do not want the fault that is raised once more

	left bool // a handler has returned from the probed function: see Regs.ReturnNow

	outer  *threadState // of the handler whose call of a function the thread is in
	called bool         // a handler has made a call
	over   bool         // the thread did not come back from one: the hit has ended
}

// phase is which handlers of a thread run. Only enter and done change it: a phase follows no other but between, and who has entered one ends it on
// every way out. A handler that calls a function of the target stays in its phase; what happens in there is another threadState's.
type phase uint8

const (
	between  phase = iota // none, or PostHandlers
	atSite                // those of a site's probes, before its instruction or behind a fault of it
	atReturn              // those of Kretprobes whose calls have returned: they don't choose where the thread goes on
	atCall                // those of SyscallProbes that work by stops
)

// enter begins a phase, to which handlers look that ask what they may do.
func (ts *threadState) enter(p phase) { ts.phase = p }

// done ends it: no handler runs any more.
func (ts *threadState) done() { ts.phase, ts.regs.running = between, nil }

// resumed tells that a hit of st goes on: the kernel restarts its system call, after a stop
// that no signal handler followed; or the handler of a signal that came first has returned; or
// a FaultHandler has mended what kept the instruction from being done.
func (ts *threadState) resumed(th *ptrace.Thread, st *site, regs arch.Regs) bool {
	restarted := ts.call == st && th.Restarted()
	ts.call = nil
	if ts.put == st && ts.before.Same(regs) {
		ts.put = nil
		return true
	}
	return restarted
}

// forget: a system call of st may go on unseen.
func (ts *threadState) forget(st *site) {
	for ; ts != nil; ts = ts.outer {
		if ts.call == st {
			ts.call = nil
		}
		if ts.put == st {
			ts.put = nil
		}
	}
}

func (hs *hits) stateOf(th *ptrace.Thread, d *domain) *threadState {
	ts := hs.states.Of(th)
	if ts == nil {
		ts = &threadState{}
		hs.states.Keep(th, ts)
	}
	ts.regs.thread, ts.regs.domain, ts.regs.hit = th, d, ts
	return ts
}

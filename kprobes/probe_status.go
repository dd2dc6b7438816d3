package kprobes

import (
	"cmp"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// Status is a registered probe's state, for listings.
type Status struct {
	Probe       string
	Addr        arch.Addr
	Symbol      string // symbol+offset
	Module      string
	Hits        uint64
	NMissed     uint64
	Mechanism   Mechanism
	Reason      string // why it is not optimized, or is in no place
	Flags       Flags
	FuncEntry   bool
	Waiting     bool // it is in no place, and gets one when a library is loaded, or by Awaited
	Awaited     bool // its name was had by nothing at first: whatever comes may have it (Options.AwaitPrograms)
	Instruction string

	// Of the KP of a Kretprobe: Hits, entries, is the sum of these three, except for calls
	// that an EntryHandler let go and what happened in followed children.
	Returns       uint64 // Kretprobe.Hits
	ReturnsMissed uint64 // Kretprobe.NMissed
	Active        int    // calls in flight
}

// Mechanism is how hits of a probe are produced.
type Mechanism uint8

// The mechanisms, the slowest first.
const (
	NoMechanism Mechanism = iota // the probe is in no place
	Int3                         // a breakpoint; the instruction is stepped, emulated, or stopped on its way into the kernel
	Boosted                      // a breakpoint; a copy of the instruction runs, and the thread goes on by itself
	Optimized                    // a jump, which stops nobody
)

// String is empty for NoMechanism.
func (m Mechanism) String() string {
	return [...]string{"", "int3", "boosted", "optimized"}[m]
}

// Status tells the state of kp.
func (s *Session) Status(kp *Kprobe) Status {
	var out Status
	_ = s.tracer.Do(func() { out = s.registry.status(kp) })
	return out
}

func (rg *registry) status(kp *Kprobe) Status {
	out := Status{Probe: kp.name(), Addr: kp.Addr, Hits: kp.Hits(), NMissed: kp.NMissed(), Flags: kp.Flags, FuncEntry: kp.entry, Awaited: kp.awaited}
	if rp := kp.ret; rp != nil {
		out.Returns, out.ReturnsMissed, out.Active = rp.Hits(), rp.NMissed(), len(rp.live)+rp.active()
	}
	if rg.s.exit.Load() != nil && kp.was.mechanism != NoMechanism && len(kp.placements) == 0 {
		out.Mechanism, out.Reason = kp.was.mechanism, kp.was.reason
	} else if len(kp.placements) == 0 {
		out.Waiting, out.Reason = kp.waits, kp.reason
	} else {
		st := kp.placements[0].site
		out.Addr = st.addr
		out.Mechanism, out.Reason = st.mechanism()
		out.Instruction = host.Arch.Disassemble(st.plan.Insn)
	}
	if rg.s.table != nil {
		if loc, ok := rg.s.table.Lookup(out.Addr); ok {
			out.Symbol = loc.String()
			if loc.Symbol.Module != nil {
				out.Module = loc.Symbol.Module.Name
			}
		}
	}
	return out
}

// mechanism is how the site's hits are produced, and why by nothing faster.
func (st *site) mechanism() (m Mechanism, reason string) {
	switch {
	case st.jump() != nil:
		return Optimized, ""
	case st.plan.Method == arch.Emulated:
		return Int3, "the instruction is emulated"
	case st.plan.Method == arch.SystemCall:
		return Int3, "a system call is stopped at its entry, to hide where it was made"
	case st.plan.MustStep != "":
		return Int3, st.plan.MustStep
	case st.domain.session.opts.NoBoost:
		return Int3, "boosting is turned off"
	case st.step:
		return Int3, "a post_handler needs a trap after the instruction"
	case st.domain.optimizer.unhit[st]:
		return Boosted, "a followed process gets its jump at the first hit"
	}
	return Boosted, cmp.Or(st.refusal, "the optimizer has not come to it yet")
}

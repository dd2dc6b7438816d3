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

// statusBatch is how many probes are looked at while threads that have stopped wait for the tracer.
const statusBatch = 256

// Statuses is Status of each of kps. It is much faster than one by one.
func (s *Session) Statuses(kps []*Kprobe) []Status {
	out := make([]Status, len(kps))
	for from := 0; from < len(kps); from += statusBatch {
		end := min(from+statusBatch, len(kps))
		_ = s.tracer.Do(func() {
			for i := from; i < end; i++ {
				out[i] = s.registry.status(kps[i])
			}
		})
	}
	return out
}

func (rg *registry) status(kp *Kprobe) Status {
	out := Status{Probe: kp.name(), Addr: kp.Addr, Hits: kp.Hits(), NMissed: kp.NMissed(), Flags: kp.Flags, FuncEntry: kp.entry, Awaited: kp.absence.awaited}
	if rp := kp.ret; rp != nil {
		out.Returns, out.ReturnsMissed, out.Active = rp.Hits(), rp.NMissed(), len(rp.live)+rp.active()
	}
	at := kp.absence.last
	if len(kp.placements) > 0 {
		at = kp.stands()
		out.Addr, out.Instruction = at.addr, host.Arch.Disassemble(kp.placements[0].site.plan.Insn)
	}
	if len(kp.placements) > 0 || rg.s.exit.Load() != nil && at.mechanism != NoMechanism {
		out.Mechanism, out.Reason = at.mechanism, at.reason
	} else {
		out.Waiting, out.Reason = kp.absence.waits, kp.absence.why
	}
	if kp.Addr == 0 { // only programs that were executed have had it
		out.Addr, out.Symbol, out.Module = at.addr, at.symbol, at.module
	} else if rg.s.table != nil {
		if loc, ok := rg.s.table.Lookup(out.Addr); ok {
			out.Symbol, out.Module = loc.String(), loc.Symbol.ModuleName()
		}
	}
	return out
}

// stand is where and how a probe is in an address space.
type stand struct {
	addr           arch.Addr
	symbol, module string // if the session's own process does not have the place
	mechanism      Mechanism
	reason         string
}

// stands is kp's stand in the first of the address spaces that it is in.
func (kp *Kprobe) stands() stand {
	st := kp.placements[0].site
	at := stand{addr: st.addr}
	at.mechanism, at.reason = st.mechanism()
	lk := st.domain.linker
	if kp.Addr != 0 || lk.apart && lk.table == nil { // which would be read for this alone
		return at
	}
	if table := lk.symbols(); table != nil {
		if loc, ok := table.Lookup(st.addr); ok {
			at.symbol, at.module = loc.String(), loc.Symbol.ModuleName()
		}
	}
	return at
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
	return Boosted, cmp.Or(st.noJump.why, "the optimizer has not come to it yet")
}

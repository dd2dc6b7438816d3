package kprobes

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// FaultHandler runs for an exception in the probe's course, as fault_handler did until
// Linux 5.14: trapnr is the number of the x86 exception, 14 for a page fault (SDM vol. 3A
// §6.3.1), as far as the signal tells it. There are two occasions:
//
//   - The probed instruction has raised it. regs.IP is the probed address; nothing of the
//     instruction has happened. Return 1 if the cause is mended: the instruction is then
//     tried again, in the same hit; or, if IP was changed, the thread goes on there and the
//     hit has ended. The program learns nothing of the exception. Return 0 for it to be told
//     by the signal that it is told by without a probe; should it retry the instruction,
//     that is a hit again.
//   - A PreHandler or PostHandler of the probe has accessed target memory by regs and could
//     not; the hit counts in NMissed. regs are as that handler left them. Return 1 to have
//     the access tried once more; with 0 the handler gets the error.
//
// What a FaultHandler cannot access itself is an error to it and nothing more. The kernel
// sends no signal that a program blocks or ignores for an exception: it unblocks it and sets
// its action to the default first, which a FaultHandler cannot undo.
type FaultHandler func(kp *Kprobe, regs *Regs, trapnr int) int

// The exceptions of the processor (SDM vol. 3A, table 6-1).
const (
	divideError     = 0
	debug           = 1
	boundRange      = 5
	invalidOpcode   = 6
	stackSegment    = 12
	protection      = 13
	pageFault       = 14
	floatingPoint   = 16
	alignment       = 17
	machineCheck    = 18
	simdException   = 19
	controlFlow     = 21
	noVector        = -1
	codeKernel      = 0x80 // SI_KERNEL: the kernel says no more
	codeIntDivide   = 1    // FPE_INTDIV
	codeBounds      = 3    // SEGV_BNDERR
	codeControlFlow = 10   // SEGV_CPERR
	codeAlignment   = 1    // BUS_ADRALN
	codeMemoryError = 4    // BUS_MCEERR_AR
)

// vectorOf tells which exception of st's instruction the kernel has made a signal of
// (arch/x86/kernel/traps.c, arch/x86/mm/fault.c).
func vectorOf(info *ptrace.Siginfo, st *site) int {
	switch code := info.Code(); info.Signo() {
	case unix.SIGSEGV:
		return segmentVector(code)
	case unix.SIGBUS:
		switch code {
		case codeAlignment:
			return alignment
		case codeMemoryError:
			return machineCheck
		case codeKernel:
			return stackSegment
		}
		return pageFault
	case unix.SIGFPE:
		switch {
		case st.plan.Recorded, strings.HasPrefix(host.Arch.Disassemble(st.plan.Insn), "fwait"):
			return floatingPoint
		case code == codeIntDivide:
			return divideError
		}
		return simdException
	case unix.SIGILL:
		return invalidOpcode
	case unix.SIGTRAP:
		return debug
	}
	return noVector
}

func segmentVector(code int) int {
	switch code {
	case codeKernel:
		return protection
	case codeBounds:
		return boundRange
	case codeControlFlow:
		return controlFlow
	}
	return pageFault
}

// mended asks the FaultHandlers of a site about a signal that its instruction has raised to
// th, which has left the slot for the original address, in the order of all handlers until
// one returns 1. Then the program gets no signal.
func (hs *hits) mended(th *ptrace.Thread, st *site, regs arch.Regs, trapnr int) (ptrace.Delivery, ptrace.Verdict) {
	ts := hs.stateOf(th, st.domain)
	declined := ts.declined == st
	if ts.declined = nil; declined || ts.outer != nil {
		return ptrace.Deliver, ptrace.AsTold()
	}
	ts.regs.Regs, ts.site, ts.called = regs, st, false
	ts.enter(atSite)
	handled := false
	for _, kp := range st.probes {
		if !kp.enabled() || kp.session == nil || kp.FaultHandler == nil || ts.over {
			continue
		}
		if handled = hs.s.handlers.guard(kp, func() int { return kp.FaultHandler(kp, &ts.regs, trapnr) }) != 0; handled {
			break
		}
	}
	ts.site = nil
	ts.done()
	if st.domain.released || ts.over {
		return ptrace.Deliver, ptrace.AsTold() // a session that ended has told the program already
	}
	if !handled && ts.called {
		// The kernel keeps what it tells of an exception beside the siginfo (trapno, cr2) in
		// one place, and has had others since. It is raised once more.
		ts.declined = st
		regs.SetIP(st.addr)
	} else if !handled {
		return ptrace.Deliver, ptrace.AsTold()
	}
	if regs.IP() == st.addr {
		return ptrace.Drop, ts.callLater(st, regs)
	}
	return ptrace.Drop, ptrace.AsTold()
}

// mended asks the FaultHandler of the probe whose handler runs about an access that failed,
// and says whether to try again (B12, B14).
func (r *Regs) mended() bool {
	kp := r.running
	if kp == nil || kp.FaultHandler == nil {
		return false
	}
	kp.missed.add(MissAccess, 1)
	r.running = nil
	defer func() { r.running = kp }()
	return r.domain.session.handlers.guard(kp, func() int { return kp.FaultHandler(kp, r, pageFault) }) != 0
}

// rawMemory is a thread's memory for accesses that are not a handler's own.
type rawMemory struct{ *Regs }

func (m rawMemory) ReadMemory(at arch.Addr, p []byte) error {
	if err := m.domain.space.ReadMemory(at, p); err != nil {
		return err
	}
	m.domain.text.Overlay(at, p)
	return nil
}

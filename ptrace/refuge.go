package ptrace

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// What becomes of a thread that makes system calls for us when we are killed meanwhile, and no guard can help it
// (guard.go): before there is one, in a program that has none, and while the thread blocks SIGTRAP.
//
// The call is made by an instruction that a return from a function follows, and the stack pointer is at a signal's frame with all
// that the thread had. So it returns, to the code by which handlers end, and the kernel gives it back registers, extended
// state and mask. All of it is the program's own code; what is ours is the frame.
//
//	at our first stop       its own registers; the frame lies there, nobody looks at it
//	moved, before a call    in front of the return, the stack pointer at the frame
//	in the call             will come there
//	at the end, put back    its own registers
//
// Each of these changes is one request. What other threads see is the frame's memory. That must be memory which nobody
// has ever used: the lowest pages of the initial stack, if those, and as many bytes as spareGap above them, were never touched. A
// stack comes there by way of the gap. What a tracer has touched begins with spareMark, for the next one. In between our look and our write, some microseconds, it would have to grow by more than
// that; afterwards nothing is written there any more.

const (
	spareLen = 4 * pageSize // more than the largest frame, with tiles of AMX
	spareGap = 16 * pageSize
	pageSize = 4096

	spareMark = "gokprobe's spare memory\x00"
)

// frames is the host's architecture as a maker of signals' frames.
var frames, _ = Host.(arch.Frames)

// refuge is what a Space knows of these.
type refuge struct {
	insn, restorer arch.Addr
	searched       bool // they were looked for
}

// takeRefuge moves a thread to where it goes on with saved and mask if we are killed, and returns the instruction by
// which it can make system calls there. ok is false if there is no such place.
func (th *Thread) takeRefuge(saved *hostRegs, mask Sigset) (insn arch.Addr, ok bool) {
	s := th.Proc.Space
	if !s.findReturns() {
		return 0, false
	}
	spare, ok := s.spareStack()
	if !ok {
		return 0, false
	}
	xstate, err := th.xstate()
	if err != nil {
		return 0, false
	}
	frame, sp := frames.SignalFrame(spare.End, s.refuge.restorer, saved, uint64(mask), xstate)
	if frame == nil || sp < spare.Start+pageSize || s.WriteMemory(sp, frame) != nil {
		return 0, false
	}
	regs, err := th.hostRegs()
	if err != nil {
		return 0, false
	}
	regs.Rsp = uint64(sp)
	regs.Rip = uint64(s.refuge.insn) + uint64(len(Host.SyscallInsn()))
	regs.Orig_rax = ^uint64(0)
	regs.Set64BitMode()
	return s.refuge.insn, th.writeThrough() == nil
}

// findReturns finds the code for refuges: a system call and a return, in the vdso if it has that, and what
// handlers return to. It reports whether both are there, as they were.
func (s *Space) findReturns() bool {
	r := &s.refuge
	if frames == nil {
		return false
	}
	if !r.searched {
		r.searched = true
		r.insn, _ = s.findCode(frames.SyscallReturn(), inVDSO, inFile)
		for _, load := range frames.SigreturnLoads() {
			if r.restorer == 0 {
				r.restorer, _ = s.findCode(append(bytes.Clone(load), Host.SyscallInsn()...), inVDSO, inFile)
			}
		}
	}
	if r.insn == 0 || r.restorer == 0 {
		return false
	}
	now := make([]byte, len(frames.SyscallReturn()))
	return s.ReadMemory(r.insn, now) == nil && bytes.Equal(now, frames.SyscallReturn()) // no breakpoint has come there
}

// spareStack is memory of the process's initial stack that nothing uses, nor will for the moment.
func (s *Space) spareStack() (arch.Range, bool) {
	tid, err := s.TID()
	if err != nil {
		return arch.Range{}, false
	}
	maps, err := s.Maps()
	if err != nil {
		return arch.Range{}, false
	}
	for _, m := range maps {
		if m.Path != "[stack]" || !m.Write || m.Range.Len() < spareLen+spareGap {
			continue
		}
		spare := stretch(m.Range.Start, spareLen)
		if !untouched(tid, spare) && !s.marked(spare.Start) || !untouched(tid, stretch(spare.End, spareGap)) {
			return arch.Range{}, false
		}
		ok := s.WriteMemory(spare.Start, []byte(spareMark)) == nil
		spare.Start += arch.Addr(len(spareMark))
		return spare, ok
	}
	return arch.Range{}, false
}

func untouched(tid int, r arch.Range) bool {
	free, err := procfs.Untouched(tid, r)
	return err == nil && free
}

func (s *Space) marked(at arch.Addr) bool {
	mark := make([]byte, len(spareMark))
	return s.ReadMemory(at, mark) == nil && string(mark) == spareMark
}

func stretch(at arch.Addr, n uint64) arch.Range { return arch.Range{Start: at, End: at + arch.Addr(n)} }

// LeaveRefuges has threads that make system calls for a killed tracer, in a refuge of its, go on to where they were before. It must be called in
// a Freeze, before anybody has a thread make system calls: that takes the same memory. Signals are blocked there, so no trap is used for it.
func (s *Space) LeaveRefuges() {
	tid, err := s.TID()
	if err != nil || frames == nil {
		return
	}
	maps, err := procfs.Maps(tid)
	if err != nil {
		return
	}
	for _, m := range maps {
		if m.Path != "[stack]" || m.Range.Len() < spareLen || !s.marked(m.Range.Start) {
			continue
		}
		for _, th := range s.Threads() {
			th.leaveRefuge(stretch(m.Range.Start, spareLen))
		}
	}
}

// leaveRefuge: the rest of the call, the return, and the call that returns from handlers.
func (th *Thread) leaveRefuge(spare arch.Range) {
	const calls = 3
	t := th.Proc.tracer
	th.remoting = true
	defer func() { th.remoting = false }()
	for n := range 2 * calls {
		regs, err := th.hostRegs()
		if th.state != stopped || err != nil {
			return
		}
		if !spare.Contains(regs.SP()) {
			if n > 0 {
				_ = t.toUserMode(th)
			}
			return
		}
		th.cont(unix.PTRACE_SYSCALL, th.stopSignal())
		if t.await(th) != nil {
			return
		}
		if th.stop.Reason == Exiting {
			t.enqueue(th)
			return
		}
	}
}

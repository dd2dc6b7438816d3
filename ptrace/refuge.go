package ptrace

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// How a thread that makes system calls for us goes on if we are killed meanwhile, and
// no guard can help it (guard.go): before there is one, in a target that has none, and
// while the thread blocks SIGTRAP.
//
// A return from a function follows the instruction that makes the call, and the stack
// pointer is at a signal's frame with the thread's whole state. So it returns, to the
// code by which handlers end, and the kernel gives it back registers, extended state
// and mask. All of it is the target's own code; only the frame is ours.
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
//
// Where a program has used that much of its initial stack, the frame lies where the
// kernel would put it for a handler: on the thread's own stack, below the red zone
// (System V ABI, AMD64 supplement §3.2.2). Nobody else uses that, if the thread's stack
// pointer is certainly in a stack: the initial one, or one of the C library's.
// frameMark in front of the frame tells the next tracer of it, and is taken away with
// the last call.

const (
	spareLen = 4 * pageSize // more than the largest frame, with tiles of AMX
	spareGap = 16 * pageSize
	pageSize = 4096

	spareMark = "gokprobe's spare memory\x00"
	frameMark = "gokprobe: a thread's own frame\x00\x00" // a multiple of 16 bytes
)

// refuge is what a Space knows of these.
type refuge struct {
	insn, restorer arch.Addr
	returns        []byte // the code at restorer
	searched       bool   // they were looked for
}

// takeRefuge moves a thread to a place from where it goes on with saved and mask if we
// are killed. It returns the instruction by which the thread can make system calls
// there. ok is false if there is no such place.
func (th *Thread) takeRefuge(saved *host.Regs, mask Sigset) (insn arch.Addr, ok bool) {
	s := th.Proc.Space
	if !s.findReturns() {
		return 0, false
	}
	mark := ""
	spare, ok := s.spareStack()
	if !ok {
		mark = frameMark
		if spare, ok = th.Proc.Space.stackBelow(saved.SP(), saved.ThreadPointer()); !ok {
			return 0, false
		}
	}
	xstate, err := th.extended()
	if err != nil {
		return 0, false
	}
	frame, sp := host.Frames.SignalFrame(spare.End, s.refuge.restorer, saved, uint64(mask), xstate)
	at := sp - arch.Addr(len(mark))
	if frame == nil || at < spare.Start+pageSize || s.WriteMemory(at, append([]byte(mark), frame...)) != nil {
		return 0, false
	}
	if mark != "" {
		th.at.errand.mark = at
	}
	regs, err := th.hostRegs()
	if err != nil {
		return 0, false
	}
	regs.SetSP(sp)
	regs.SetIP(s.refuge.insn.Add(int64(len(host.Arch.SyscallInsn()))))
	regs.LeaveCall()
	regs.SetNativeMode()
	return s.refuge.insn, th.writeThrough() == nil
}

// stackBelow is what a thread whose stack pointer is sp, and its thread pointer tp, has below that and the red zone. C libraries put what tp points to at the top of the stack that they
// have mapped for a thread: so a mapping that holds both, behind a guard page, is no heap in which somebody has made a stack.
func (s *Space) stackBelow(sp, tp arch.Addr) (arch.Range, bool) {
	const redZone = 128
	maps, err := s.Maps()
	if err != nil {
		return arch.Range{}, false
	}
	for i, m := range maps {
		if !m.Range.Contains(sp) {
			continue
		}
		guarded := i > 0 && maps[i-1].Range.End == m.Range.Start && !maps[i-1].Read && !maps[i-1].Write && !maps[i-1].Exec
		if !m.Write || m.Shared || m.Path != "[stack]" && !(guarded && m.Anonymous() && m.Range.Contains(tp)) {
			break
		}
		return arch.Range{Start: m.Range.Start, End: max(m.Range.Start, sp-redZone)}, true
	}
	return arch.Range{}, false
}

// eraseMark: the thread has its own registers again.
func (th *Thread) eraseMark() {
	if th.at.errand.mark != 0 {
		_ = th.Proc.Space.WriteMemory(th.at.errand.mark, make([]byte, len(frameMark)))
		th.at.errand.mark = 0
	}
}

// ownFrame returns the beginning of the frame on a stopped thread's own stack, with
// which it makes system calls for a killed tracer. ok is false if there is none.
func (th *Thread) ownFrame() (at arch.Addr, ok bool) {
	const word, loadLen = 8, 16 // the return to the restorer, and most of that
	regs, err := th.hostRegs()
	if th.state != stopped || err != nil {
		return 0, false
	}
	s := th.Proc.Space
	now := make([]byte, len(frameMark))
	for _, at := range []arch.Addr{regs.SP(), regs.SP() - word} {
		if s.ReadMemory(at-arch.Addr(len(frameMark)), now) == nil && string(now) == frameMark && s.findReturns() {
			return at, stretch(s.refuge.insn, loadLen).Contains(regs.IP()) || stretch(s.refuge.restorer, loadLen).Contains(regs.IP())
		}
	}
	return 0, false
}

// findReturns finds the code for refuges: a system call and a return, in the vdso if it
// has that, and the code that handlers return to. It reports whether both are there, as
// they were.
func (s *Space) findReturns() bool {
	r := &s.refuge
	if host.Frames == nil {
		return false
	}
	if !r.searched {
		r.searched = true
		r.insn, _ = s.findCode(host.Frames.SyscallReturn(), inVDSO, inFile)
		for _, load := range host.Frames.SigreturnLoads() {
			if r.restorer == 0 {
				r.returns = append(bytes.Clone(load), host.Arch.SyscallInsn()...)
				r.restorer, _ = s.findCode(r.returns, inVDSO, inFile)
			}
		}
	}
	return r.insn != 0 && r.restorer != 0 && s.has(r.insn, host.Frames.SyscallReturn()) && s.has(r.restorer, r.returns)
}

// has tells that code is still at at: no breakpoint has come there.
func (s *Space) has(at arch.Addr, code []byte) bool {
	now := make([]byte, len(code))
	return s.ReadMemory(at, now) == nil && bytes.Equal(now, code)
}

// inherit takes over from the memory that s is a copy of where the code is that remote calls use. Whoever uses it looks at it once more,
// as in the parent. Not all of a parent's mappings need to be in the child (MADV_DONTFORK).
func (s *Space) inherit(parent *Space) {
	if s == parent || !parent.findReturns() {
		return
	}
	if s.refuge = parent.refuge; !s.findReturns() {
		s.refuge = refuge{}
		return
	}
	s.syscallInsn = s.refuge.insn // it begins with the system call, and is no code of ours
}

// spareStack is memory of the process's initial stack that nothing uses, now or soon.
func (s *Space) spareStack() (arch.Range, bool) {
	m, err := s.stack()
	if err != nil || m == nil || !m.Write || m.Range.Len() < spareLen+spareGap {
		return arch.Range{}, false
	}
	spare := stretch(m.Range.Start, spareLen)
	if !s.untouched(spare) && !s.marked(spare.Start) || !s.untouched(stretch(spare.End, spareGap)) {
		return arch.Range{}, false
	}
	ok := s.WriteMemory(spare.Start, []byte(spareMark)) == nil
	spare.Start += arch.Addr(len(spareMark))
	return spare, ok
}

func (s *Space) untouched(r arch.Range) bool {
	if s.reopen() != nil || s.entry.files.pagemap == nil {
		return false
	}
	free, err := procfs.Untouched(s.entry.files.pagemap, r)
	return err == nil && free
}

func (s *Space) marked(at arch.Addr) bool {
	mark := make([]byte, len(spareMark))
	return s.ReadMemory(at, mark) == nil && string(mark) == spareMark
}

func stretch(at arch.Addr, n uint64) arch.Range { return arch.Range{Start: at, End: at + arch.Addr(n)} }

// LeaveRefuges has threads that make system calls for a killed tracer, in a refuge of
// its, go on to where they were before. It must be called before a thread
// makes system calls for us: they use the same memory. Signals are blocked there, so no
// trap is used for it.
func (s *Space) LeaveRefuges(*Frozen) {
	tid, err := s.TID()
	if err != nil || host.Frames == nil {
		return
	}
	maps, err := procfs.Maps(tid)
	if err != nil {
		return
	}
	for _, th := range s.Threads() {
		if at, ok := th.ownFrame(); ok {
			th.at.errand.mark = at - arch.Addr(len(frameMark))
			th.leaveRefuge(arch.Range{Start: th.at.errand.mark, End: at + 16})
			th.eraseMark()
		}
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
	th.at.errand.on = true
	defer func() { th.at.errand.on = false }()
	for n := range 2 * calls {
		regs, err := th.hostRegs()
		if th.state != stopped || err != nil {
			return
		}
		if !spare.Contains(regs.SP()) {
			if n > 0 {
				th.at.errand.on = false
				_ = t.toUserMode(th)
			}
			return
		}
		th.cont(unix.PTRACE_SYSCALL, th.stopSignal())
		if t.await(th) != nil {
			return
		}
		if th.at.stop.Reason == Exiting {
			t.enqueue(th)
			return
		}
	}
}

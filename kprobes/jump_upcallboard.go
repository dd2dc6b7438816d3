package kprobes

import (
	"os"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// board is the mailboxes that detours in one part of an address space share.
type board struct {
	arch.Mailboxes
	domain *domain
	where  arch.Range
}

const (
	boxesOnBoard = 32
	boardAlign   = 4096
	// A board serves detours of code as near as this: cells are within reach of what is
	// near them, and so are detours.
	boardReach = 512 << 20

	// patience is how long a thread waits for an answer: some 20 µs. A trap costs a quarter of that,
	// so nothing is lost by waiting for a handler that takes as long as that.
	patience = 1000
)

// callers is the threads of a domain that upcalls may come from, by their thread pointers; nil
// for one that several have.
type callers map[arch.Addr]*ptrace.Thread

// hostUpcalls is the architecture's part of upcalls, nil if this machine has none.
var hostUpcalls = upcallsHere()

func upcallsHere() arch.Upcalls {
	if threadPointerReadable() {
		return host.Upcalls
	}
	return nil
}

// threadPointerReadable tells whether programs may read the bases of fs and gs
// (HWCAP2_FSGSBASE, Documentation/arch/x86/x86_64/fsgs.rst).
var threadPointerReadable = sync.OnceValue(func() bool {
	const hwcap2, fsgsbase = 26, 1 << 1
	auxv, err := procfs.Auxv(os.Getpid())
	return err == nil && auxv[hwcap2]&fsgsbase != 0
})

// boardNear returns mailboxes for a detour of code at at.
func (u *upcalls) boardNear(at arch.Addr) (*board, error) {
	for _, b := range u.boards {
		if serves(b.where, at, boardReach) {
			return b, nil
		}
	}
	size := hostUpcalls.UpcallSize(boxesOnBoard)
	where, mem, err := u.d.region.Cells(at, size+boardAlign)
	if err != nil {
		return nil, err
	}
	skip := -where & (boardAlign - 1)
	b := &board{domain: u.d, where: arch.Range{Start: where + skip, End: where + skip + arch.Addr(size)}}
	b.Mailboxes = hostUpcalls.Mailboxes(mem[skip:], b.where.Start, boxesOnBoard)
	b.SetPatience(patience)
	b.SetLooking(u.d.session.answering.looking)
	u.boards = append(u.boards, b)
	s := u.d.session
	if s.answering.boards = append(s.answering.boards, b); len(s.answering.boards) == 1 {
		s.tracer.SetPoller(polling{s})
	}
	return b, nil
}

// serves tells whether data is in the reach of detours of code at at, wherever these lie: it is near,
// or both are in the lowest 2 GiB, where all that is in reach of the code is in reach of the data.
func serves(data arch.Range, at, near arch.Addr) bool {
	const low = 1 << 31
	return data.End <= low && at < low || max(at, data.Start)-min(at, data.Start)+(data.End-data.Start) < near
}

// endBoards forgets the mailboxes before their memory goes. Handlers that still run for one
// keep a copy of the registers.
func (u *upcalls) endBoards() {
	s := u.d.session
	for _, ts := range s.answering.inBox {
		if ts.regs.domain == u.d && ts.box != nil {
			ts.regs.Regs, ts.box, ts.over = ts.regs.Regs.Clone(), nil, true
		}
	}
	s.answering.boards = slices.DeleteFunc(s.answering.boards, func(b *board) bool { return b.domain == u.d })
	if u.boards = nil; len(s.answering.boards) == 0 {
		s.tracer.SetPoller(nil)
	}
}

// callerOf is the thread whose thread pointer is base, if that is sure. A vfork child has its
// parent's.
func (u *upcalls) callerOf(base arch.Addr) *ptrace.Thread {
	th := u.callers[base]
	if th == nil || th.Stopped() || !th.RunsUserCode() || u.d.space.Shared() {
		return nil
	}
	return th
}

// learn notes the thread pointer of a thread that has trapped where it might have made an
// upcall.
func (u *upcalls) learn(th *ptrace.Thread, regs arch.Regs) {
	base := regs.ThreadPointer()
	if base == 0 || u.d.space.Shared() {
		return
	}
	if known, ok := u.callers[base]; ok && known != th {
		th = nil
	}
	if u.callers == nil {
		u.callers = callers{}
	}
	u.callers[base] = th
}

// unlearn forgets a thread that ends. If it ends in an upcall, its mailbox is free.
func (u *upcalls) unlearn(th *ptrace.Thread) {
	for base, known := range u.callers {
		if known == th {
			delete(u.callers, base)
		}
	}
	if len(u.boards) == 0 || !th.Stopped() {
		return
	}
	regs, err := th.Regs()
	if err != nil {
		return
	}
	if det := u.d.detours.holding(regs.IP()); det != nil && det.upcall != nil && det.Body.Contains(regs.IP()) {
		gone := regs.Clone()
		_, _ = u.leaveUpcall(det, gone)
	}
}

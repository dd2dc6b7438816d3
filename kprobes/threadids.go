package kprobes

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Which thread has written a record: programs can't ask the kernel, so they tell the address of
// the thread's own storage (the base of fs). At any moment no two threads that run have the same:
// one may get it when another has ended, and a vfork child has its parent's, which waits meanwhile.

// identity is a thread in records, from some time on, until another, which is zero while it lasts.
type identity struct {
	pid, tid    int
	comm        func(time.Time) string
	base        uint64
	from, until time.Time
}

// whose finds out who has recorded at a time. The latest that has got the storage by then is it.
func (d *domain) whose(base uint64, at time.Time) *identity {
	all := d.tids[base]
	for i := len(all) - 1; i >= 0; i-- {
		if id := all[i]; !at.Before(id.from) && (id.until.IsZero() || !at.After(id.until)) {
			return id
		}
	}
	return nil
}

// enter adds an identity.
func (d *domain) enter(id *identity) {
	const many = 32
	all := d.tids[id.base]
	if len(all) > many { // what is that old has been handed on
		all = slices.DeleteFunc(all, func(o *identity) bool { return !o.until.IsZero() && time.Since(o.until) > time.Second })
	}
	i, _ := slices.BinarySearchFunc(all, id.from, func(o *identity, t time.Time) int { return o.from.Compare(t) })
	d.tids[id.base] = slices.Insert(all, i, id)
}

// note remembers whose storage a stopped thread uses.
func (d *domain) note(th *ptrace.Thread) {
	regs, err := th.Regs()
	if err != nil {
		return
	}
	base := uint64(regs.ThreadPointer())
	if id := d.noted[th.TID]; id != nil && id.base == base {
		return
	}
	id := &identity{pid: th.Proc.PID, tid: th.TID, comm: th.Comm, base: base, from: th.Born}
	th.Comm(time.Now()) // later there may be none
	d.noted[th.TID] = id
	d.enter(id)
}

// noteAll notes the threads that are stopped, and reports whether all are known that might be
// taken for others.
func (d *domain) noteAll() (all bool) {
	all = true
	for _, th := range d.space.Threads() {
		if th.Stopped() {
			d.note(th)
		}
		all = all && (d.noted[th.TID] != nil || th.Proc == d.space.Processes()[0])
	}
	return all
}

// lookAtThreads finds out about all threads, in one pause.
func (d *domain) lookAtThreads() {
	if !d.released {
		_ = d.space.Freeze(func() error { d.noteAll(); return nil })
	}
}

// noteExit ends a thread's identity.
func (d *domain) noteExit(th *ptrace.Thread) {
	if len(d.rings) == 0 {
		return
	}
	d.note(th)
	if id := d.noted[th.TID]; id != nil {
		id.until = time.Now()
		delete(d.noted, th.TID)
	}
}

// noteExec ends those of a vfork child. If it was never looked at, it had its parent's storage.
func (d *domain) noteExec(p *ptrace.Process) {
	if len(d.rings) == 0 {
		return
	}
	if id := d.noted[p.PID]; id != nil {
		id.until = time.Now()
		delete(d.noted, p.PID)
		return
	}
	for _, th := range d.space.Threads() {
		if parent := d.noted[th.TID]; parent != nil && !th.RunsUserCode() {
			leader := p.Leader()
			d.enter(&identity{pid: p.PID, tid: p.PID, comm: leader.Comm, base: parent.base, from: leader.Born, until: time.Now()})
		}
	}
}

// threadAccess is how programs in the target find out their thread.
func (d *domain) threadAccess() (hwcap2 uint64, self bool) {
	const atHWCAP2 = 26 // getauxval(3)
	if auxv, err := d.space.Auxv(); err == nil {
		hwcap2 = auxv[atHWCAP2]
	}
	for base := range d.tids {
		var b [8]byte
		if d.space.ReadMemory(arch.Addr(base), b[:]) == nil && binary.LittleEndian.Uint64(b[:]) == base {
			return hwcap2, true
		}
	}
	return hwcap2, false
}

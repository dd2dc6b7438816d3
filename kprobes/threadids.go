package kprobes

import (
	"encoding/binary"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Which thread has written a record: programs can't ask the kernel, so they tell the address of
// the thread's own storage (the base of fs), which no two threads that run share, but a vfork
// child and its parent: what the child records may be told of the parent.

// identity is a thread in records.
type identity struct {
	pid, tid int
	comm     func(time.Time) string
}

// lookAtThreads finds out about all threads, in one pause.
func (d *domain) lookAtThreads() {
	clear(d.noted) // some may have got their storage since
	if d.noteAll() || d.released {
		return
	}
	_ = d.space.Freeze(func() error { d.noteAll(); return nil })
}

// noteAll notes the threads that are stopped, and reports whether those are all.
func (d *domain) noteAll() (all bool) {
	all = true
	for _, th := range d.space.Threads() {
		if th.Stopped() {
			d.note(th)
		}
		_, ok := d.noted[th.TID]
		all = all && ok
	}
	return all
}

// note remembers whose storage a stopped thread uses.
func (d *domain) note(th *ptrace.Thread) {
	if _, ok := d.noted[th.TID]; ok {
		return
	}
	regs, err := th.Regs()
	if err != nil {
		return
	}
	base, _ := regs.Get("fs_base")
	d.noted[th.TID] = base
	if id := d.tids[base]; id == nil || id.tid != th.TID {
		d.tids[base] = &identity{pid: th.Proc.PID, tid: th.TID, comm: th.Comm}
		th.Comm(time.Now()) // later there may be none
	}
}

// noteExit takes what a thread has recorded, before another may have its storage. It calls no
// handler.
func (d *domain) noteExit(th *ptrace.Thread) {
	if len(d.rings) == 0 {
		return
	}
	d.note(th)
	d.fetch(complete)
	base := d.noted[th.TID]
	for i := range d.taken {
		if w := &d.taken[i]; w.by == nil && w.thread == base {
			w.by = d.tids[base]
		}
	}
	delete(d.noted, th.TID)
	if id := d.tids[base]; id == nil || id.tid != th.TID {
		return
	}
	delete(d.tids, base)
	for _, other := range d.space.Threads() { // a vfork child's parent
		if at, ok := d.noted[other.TID]; ok && at == base && other != th {
			d.tids[base] = &identity{pid: other.Proc.PID, tid: other.TID, comm: other.Comm}
		}
	}
}

// threadAccess is how programs in the target find out their thread.
func (d *domain) threadAccess() (hwcap2 uint64, self bool) {
	const atHWCAP2 = 26 // getauxval(3)
	tid, err := d.space.TID()
	if err != nil {
		return 0, false
	}
	if auxv, err := procfs.Auxv(tid); err == nil {
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

package kprobes

import (
	"cmp"
	"encoding/binary"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/records"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Which thread has written a record: programs can't ask the kernel, so they tell the address of
// the thread's own storage (the base of fs). Package records keeps whose that was.

// note remembers whose storage a stopped thread uses.
func (rc *recorder) note(th *ptrace.Thread) {
	regs, err := th.Regs()
	if err != nil {
		return
	}
	base := uint64(regs.ThreadPointer())
	if w := rc.writers.Present(th.TID); w != nil && w.Storage == base {
		return
	}
	now := time.Now()
	th.Name().Known(now) // later there may be none
	rc.writers.Note(&records.Writer{PID: th.Proc.PID, TID: th.TID, Comm: th.Name().At, Halts: th.Halts(), Storage: base, From: th.Born}, rc.d.session.records.handed)
}

// noteAll notes the threads that are stopped, and reports whether all are known that might be
// taken for others.
func (rc *recorder) noteAll() (all bool) {
	all = true
	for _, th := range rc.d.space.Threads() {
		if th.Stopped() {
			rc.note(th)
		}
		all = all && (rc.writers.Present(th.TID) != nil || th.Proc == rc.d.space.Processes()[0])
	}
	return all
}

// lookAtThreads finds out about all threads, in one pause.
func (rc *recorder) lookAtThreads() {
	if !rc.d.released {
		_ = rc.d.space.Freeze(func(*ptrace.Frozen) error { rc.noteAll(); return nil })
	}
}

// noteExit tells of a thread that ends.
func (rc *recorder) noteExit(th *ptrace.Thread) {
	if len(rc.rings) == 0 {
		return
	}
	now := time.Now()
	th.Name().Read(now) // its last records are read when it is gone
	rc.note(th)
	rc.writers.End(th.TID, now)
}

// noteExec tells of a vfork child that has its own memory now. If it was never looked at, it had its parent's storage.
func (rc *recorder) noteExec(p *ptrace.Process) {
	if len(rc.rings) == 0 {
		return
	}
	now := time.Now()
	if rc.writers.End(p.PID, now) {
		return
	}
	for _, th := range rc.d.space.Threads() {
		if parent := rc.writers.Present(th.TID); parent != nil && !th.RunsUserCode() {
			leader := p.Leader()
			was := leader.Name().Before()
			comm := func(now time.Time) string { // it had its maker's, unless it gave itself another
				return cmp.Or(was.At(now), parent.Comm(now))
			}
			rc.writers.Enter(&records.Writer{PID: p.PID, TID: p.PID, Comm: comm, Halts: leader.Halts(), Storage: parent.Storage, From: leader.Born, Until: now}, rc.d.session.records.handed)
		}
	}
}

// threadAccess is how programs in the target find out their thread.
func (rc *recorder) threadAccess() (hwcap2 uint64, self bool) {
	const atHWCAP2 = 26 // getauxval(3)
	if auxv, err := rc.d.space.Auxv(); err == nil {
		hwcap2 = auxv[atHWCAP2]
	}
	if rc.writers.None() && !threadPointerReadable() {
		rc.lookAtThreads() // none of them has stopped yet, and only what they have at their storage tells whether it names itself
	}
	for base := range rc.writers.Storages() {
		var b [8]byte
		if rc.d.space.ReadMemory(arch.Addr(base), b[:]) == nil && binary.LittleEndian.Uint64(b[:]) == base {
			return hwcap2, true
		}
	}
	return hwcap2, false
}

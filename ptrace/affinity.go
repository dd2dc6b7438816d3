package ptrace

import (
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// follower keeps the tracer's thread on the CPU of the thread that hits. A stop then
// switches from one to the other on the spot; from another CPU each direction would
// wake an idle processor, which costs more than all the rest of a stop. When hits
// come from several CPUs there is none to follow, and the scheduler decides.
//
// Only the tracer's thread is moved, never the target's.
type follower struct {
	all    unix.CPUSet
	usable bool
	pinned int // CPU, -1 if none

	hits   int
	period int // hits between two looks
	moves  int // looks in a row that found the target elsewhere
}

const (
	firstLook = 8
	lastLook  = 8192
	maxMoves  = 4
)

func (f *follower) init() {
	f.pinned, f.period = -1, firstLook
	f.usable = unix.SchedGetaffinity(0, &f.all) == nil && f.all.Count() > 1
}

// follow is called for each breakpoint. Most calls only count.
func (f *follower) follow(th *Thread) {
	if !f.usable {
		return
	}
	if f.hits++; f.hits < f.period {
		return
	}
	f.hits = 0
	st, err := procfs.ReadStat(th.Proc.PID, th.TID)
	if err != nil {
		return
	}
	if st.Processor == f.pinned {
		f.moves = 0
		f.period = min(2*f.period, lastLook)
		return
	}
	if f.moves++; f.moves > maxMoves {
		f.unpin()
		f.moves, f.period = 0, min(16*f.period, lastLook)
		return
	}
	f.pin(st.Processor)
}

func (f *follower) pin(cpu int) {
	if !f.all.IsSet(cpu) {
		return
	}
	var one unix.CPUSet
	one.Set(cpu)
	if unix.SchedSetaffinity(0, &one) == nil {
		f.pinned = cpu
	}
}

func (f *follower) unpin() {
	if f.pinned >= 0 && unix.SchedSetaffinity(0, &f.all) == nil {
		f.pinned = -1
	}
}

package recovery

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

func ownerOf(pid int, base arch.Addr) (o trampoline.Owner, err error) {
	h, err := trampoline.Glance(ptrace.PeekMemory{PID: pid}, base)
	if err != nil {
		return o, err
	}
	return h.Owner, nil
}

// ownerAlive tells whether the tracer that owns a region lives. The region is the
// target's memory, which may name any process there: so it is believed only of one that
// traces pid, which the kernel tells. Any other process is no obstacle.
func ownerAlive(pid int, o trampoline.Owner) bool {
	if o.PIDNamespace != 0 && o.PIDNamespace != PIDNamespace() {
		return false
	}
	owner, err := procfs.ReadStat(int(o.PID), 0)
	if err != nil || owner.StartTime != o.StartTime {
		return false
	}
	tids, _ := procfs.Tasks(pid)
	for _, tid := range tids {
		target, err := procfs.ReadStatus(pid, tid)
		if err != nil || target.TracerPid == 0 {
			continue
		}
		tracer, err := procfs.ReadStatus(target.TracerPid, 0)
		return err == nil && tracer.Tgid == int(o.PID)
	}
	return false
}

// PIDNamespace is the inode number of our own PID namespace, 0 if it can't be had.
func PIDNamespace() uint64 {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.Trim(filepath.Base(link), "pid:[]"), 10, 64)
	return n
}

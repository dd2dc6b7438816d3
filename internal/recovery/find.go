package recovery

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/trampoline"
)

// mostRegions bounds the killed tracers that a process is believed to have had. Each
// would have recovered the process from the one before.
const mostRegions = 16

// regionsOf finds the injected regions of a process: where each one's header lies; and
// all mappings that are ours by name, those too that no header tells of yet. A gokprobe
// maps memory that it shares with its target; that is no region in the gokprobe itself.
func regionsOf(pid int) (bases []arch.Addr, added []arch.Range, err error) {
	maps, err := procfs.Maps(pid)
	if tids, _ := procfs.Tasks(pid); err == nil && len(maps) == 0 { // the leader has ended before the others
		for _, tid := range tids {
			if maps, _ = procfs.Maps(tid); len(maps) > 0 {
				pid = tid
				break
			}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the mappings of process %d: %w", pid, err)
	}
	probes := false // it is a gokprobe: it shares memory without a header with a target, too
	for _, m := range maps {
		named := m.Path == "/memfd:"+trampoline.MemfdName
		if named {
			added = append(added, m.Range)
		}
		if (named || m.Path == "") && m.Offset == 0 && m.Read && m.Write && hasMagic(pid, m.Range.Start) {
			if named && isView(pid, m.Range.Start) {
				probes = true
			} else {
				bases = append(bases, m.Range.Start)
			}
		}
		if len(bases) > mostRegions {
			return nil, nil, fmt.Errorf("process %d has more than %d regions that look as if a killed gokprobe had left them, and nothing is put right: %w", pid, mostRegions, trampoline.ErrTooMuch)
		}
	}
	if probes {
		added = nil
	}
	return bases, added, nil
}

func hasMagic(pid int, at arch.Addr) bool {
	b := make([]byte, len(trampoline.Magic))
	return (ptrace.PeekMemory{PID: pid}).ReadMemory(at, b) == nil && string(b) == trampoline.Magic
}

// isView tells that the header at at is that of another process's memory: it says where it lies there.
func isView(pid int, at arch.Addr) bool {
	h, err := trampoline.Glance(ptrace.PeekMemory{PID: pid}, at)
	if err != nil || len(h.Arenas) == 0 {
		return false
	}
	if h.Arenas[0].Data.Start != at {
		return true
	}
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil || st.Tgid != int(h.Owner.PID) || h.Owner.PIDNamespace != PIDNamespace() {
		return false
	}
	owner, err := procfs.ReadStat(st.Tgid, 0)
	return err == nil && owner.StartTime == h.Owner.StartTime
}

package kprobes

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// manySlots is how many an arena has anyway.
const manySlots = 512

// reserve makes room for the slots of many sites: one arena for code that lies together,
// instead of a series that grows. Where that fails, arenas are mapped as they are
// needed.
func (sl *slotSet) reserve(addrs []arch.Addr) {
	if len(addrs) < manySlots || sl.d.memory.private {
		return
	}
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(a arch.Addr) bool { return a == notYet })
	slices.Sort(addrs)
	for len(addrs) > 0 {
		start, n := addrs[0], 1
		for n < len(addrs) && uint64(addrs[n]-start) < host.Code.Reach()/2 {
			n++
		}
		if n >= manySlots {
			sl.reserveNear(arch.Range{Start: start, End: addrs[n-1] + 1}, n)
		}
		addrs = addrs[n:]
	}
}

func (sl *slotSet) reserveNear(code arch.Range, n int) {
	sl.makeRoom(code, n)
	_ = sl.d.region.Reserve(code, n)
}

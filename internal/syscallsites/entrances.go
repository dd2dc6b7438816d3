package syscallsites

import (
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// entranceMap is where the functions lie that branches may lead into.
type entranceMap struct {
	host Host
	list []*Function // by address
	r    arch.Range
	has  []bool // by block: most branches lead to one that no caller has a part in
}

const entranceBlock = 256 // bytes

func newEntranceMap(host Host, list []*Function, r arch.Range) *entranceMap {
	sort.Slice(list, func(i, k int) bool { return list[i].bounds.Start < list[k].bounds.Start })
	e := &entranceMap{host, list, r, make([]bool, r.Len()/entranceBlock+1)}
	for _, f := range list {
		for b := max(f.bounds.Start, r.Start) - r.Start; b <= f.bounds.End-r.Start && int(b/entranceBlock) < len(e.has); b += entranceBlock {
			e.has[b/entranceBlock] = true
		}
		e.has[min(int((f.bounds.End-r.Start)/entranceBlock), len(e.has)-1)] = true
	}
	return e
}

// note finds branches with a 32-bit displacement in own, of which code, which begins at start, has the bytes, that lead into one of the functions from outside of it. All
// bytes are looked at, so some are taken for a branch for no reason.
func (e *entranceMap) note(own arch.Range, start arch.Addr, code []byte) {
	e.host.EachBranch(code[own.Start-start:], own.Start, func(at, to arch.Addr) {
		if block := (to - e.r.Start) / entranceBlock; to < e.r.Start || block >= arch.Addr(len(e.has)) || !e.has[block] || at >= own.End {
			return
		}
		k := sort.Search(len(e.list), func(k int) bool { return e.list[k].bounds.End > to })
		if k < len(e.list) && e.list[k].bounds.Contains(to) && !e.list[k].bounds.Contains(at) {
			e.list[k].targets[to], e.list[k].entrances[to] = true, true
		}
	})
}

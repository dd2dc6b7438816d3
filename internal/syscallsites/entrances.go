package syscallsites

import (
	"encoding/binary"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// entranceMap is where the functions lie that branches may lead into.
type entranceMap struct {
	list []*Function // by address
	r    arch.Range
	has  []bool // by block: most branches lead to one that no caller has a part in
}

const entranceBlock = 256 // bytes

func newEntranceMap(list []*Function, r arch.Range) *entranceMap {
	sort.Slice(list, func(i, k int) bool { return list[i].bounds.Start < list[k].bounds.Start })
	e := &entranceMap{list, r, make([]bool, r.Len()/entranceBlock+1)}
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
	EachBranch(code[own.Start-start:], own.Start, func(at, to arch.Addr) {
		if block := (to - e.r.Start) / entranceBlock; to < e.r.Start || block >= arch.Addr(len(e.has)) || !e.has[block] || at >= own.End {
			return
		}
		k := sort.Search(len(e.list), func(k int) bool { return e.list[k].bounds.End > to })
		if k < len(e.list) && e.list[k].bounds.Contains(to) && !e.list[k].bounds.Contains(at) {
			e.list[k].targets[to], e.list[k].entrances[to] = true, true
		}
	})
}

// branchLen is the length in bytes of the branches that are looked for; those with a condition are longer by one.
const branchLen = 5

// EachBranch calls f for each place of code, which is at start, that may be a direct branch with a 32-bit displacement.
func EachBranch(code []byte, start arch.Addr, f func(at, to arch.Addr)) {
	for i := 0; i+branchLen <= len(code); i++ {
		end := i + branchLen
		switch {
		case code[i] == 0xe8, code[i] == 0xe9:
		case code[i] == 0x0f && code[i+1]&0xf0 == 0x80 && end < len(code):
			end++
		default:
			continue
		}
		f(start+arch.Addr(i), (start + arch.Addr(end)).Add(int64(int32(binary.LittleEndian.Uint32(code[end-4:])))))
	}
}

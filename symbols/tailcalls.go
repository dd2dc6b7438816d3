package symbols

import (
	"debug/dwarf"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// mostTails bounds the functions that are looked at to know where a function's jumps lead.
const mostTails = 32

// entersItself tells that the function at off may have been entered again by a jump in the place of a call, from itself or from a function that it has left for:
// then it returns to a call that has entered it with something else. That is so unless debug information tells of all such jumps. LLVM says that it does, and leaves out
// jumps through memory and others: of its functions the code must have no jump out of them.
func (d *dwarfData) entersItself(img *image, off dwarf.Offset, start uint64) bool {
	todo, starts := []dwarf.Offset{off}, starts{}
	met := map[dwarf.Offset]bool{off: true}
	left := mostSiteEntries
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		x := d.entriesAt(at)
		x.left, x.most = left, mostSiteEntries
		fn := x.next()
		if fn == nil || !tellsTailCalls(d.origins(fn)) {
			return true
		}
		if u := d.unitWith(at); u == nil || u.isLLVM() && img.jumpsOut(x, fn) {
			return true
		}
		unknown := false
		x.below(fn, func(e *dwarf.Entry) bool {
			if e.Tag != dwarf.TagCallSite && e.Tag != tagGNUCallSite || !isTailCall(e) {
				return true
			}
			to, _ := calleeOfSite(e)
			v := starts.of(x, e)
			if unknown = v == 0 || v == start || len(met) == mostTails; unknown {
				return false
			}
			if !met[to] {
				met[to] = true
				todo = append(todo, to)
			}
			return true
		})
		if left = x.left; unknown || x.err != nil {
			return true
		}
	}
	return false
}

// unitWith is the unit that an entry is in, nil if there is none.
func (d *dwarfData) unitWith(off dwarf.Offset) *unit {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].off > off }) - 1
	if i < 0 {
		return nil
	}
	return d.units[i]
}

// jumpsOut tells that the code of the function fn, which x has just read, may jump out of it, or that it is not understood.
func (img *image) jumpsOut(x *dies, fn *dwarf.Entry) bool {
	const most = 1 << 16 // bytes
	ranges, err := x.ranges(fn)
	if err != nil || len(ranges) == 0 {
		return true
	}
	inside := func(v uint64) bool {
		return slices.ContainsFunc(ranges, func(rg [2]uint64) bool { return rg[0] <= v && v < rg[1] })
	}
	start, _ := fn.Val(dwarf.AttrLowpc).(uint64)
	left := uint64(most)
	for _, rg := range ranges {
		if rg[1] < rg[0] || rg[1]-rg[0] > left {
			return true
		}
		left -= rg[1] - rg[0]
		code, err := img.readAt(rg[0], rg[1]-rg[0], nil)
		if err != nil {
			return true
		}
		for at := rg[0]; len(code) > 0; {
			insn, err := host.Arch.Decode(code[:min(len(code), host.Arch.MaxInsnLen())], arch.Addr(at))
			if err != nil || insn.Len() == 0 || insn.Len() > len(code) {
				return true
			}
			switch insn.Flow {
			case arch.FlowIndirectJump, arch.FlowFar:
				return true
			case arch.FlowJump, arch.FlowCond:
				if to := uint64(insn.Target); !inside(to) || to == start {
					return true
				}
			}
			at, code = at+uint64(insn.Len()), code[insn.Len():]
		}
	}
	return false
}

func isTailCall(e *dwarf.Entry) bool {
	is, _ := e.Val(dwarf.AttrCallTailCall).(bool)
	gnu, _ := e.Val(attrGNUTailCall).(bool)
	return is || gnu
}

// tellsTailCalls tells of a function that all jumps in it which are in the place of a call are described.
func tellsTailCalls(origins []*dwarf.Entry) bool {
	for _, a := range []dwarf.Attr{dwarf.AttrCallAllCalls, dwarf.AttrCallAllSourceCalls, dwarf.AttrCallAllTailCalls, attrGNUAllTailCalls, attrGNUAllCalls} {
		if is, _ := attr(origins, a).(bool); is {
			return true
		}
	}
	return false
}

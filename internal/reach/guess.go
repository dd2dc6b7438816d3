package reach

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

const (
	window   = 40      // instructions in front of a jump that may tell where it leads
	maxTable = 1 << 14 // entries of a table
)

// guess tries the places that are not sure. It tells whether there may be more. Tables
// come last: the more is known of the function by then, the fewer wrong entries pass.
func (w *walk) guess() bool {
	switch {
	case len(w.guesses) > 0:
		at := w.guesses[0]
		w.guesses = w.guesses[1:]
		w.comesBack(w.insns[at])
	case len(w.leas) > 0:
		at := w.leas[0]
		w.leas = w.leas[1:]
		if w.host.Taken(w.behind(at, window)) {
			w.try(w.insns[at].MemTarget)
		}
	case len(w.jumps) > 0:
		at := w.jumps[0]
		w.jumps = w.jumps[1:]
		if !w.table(at) {
			w.opaque = append(w.opaque, at)
		}
	case len(w.opaque) > 0 && !w.desired:
		w.desired = true
		for _, at := range w.fn.Pointers() {
			w.try(at)
		}
	default:
		return false
	}
	return true
}

// comesBack follows the code behind a call or system call.
func (w *walk) comesBack(i arch.Insn) {
	switch i.Flow {
	case arch.FlowSyscall:
		if w.host.Ends(w.before(i.Addr, window)) {
			return
		}
	case arch.FlowCall:
		if to, ok := w.insns[i.Target]; ok && i.Target > i.End() && w.host.PopsReturn(to) {
			return // call over data, whose address the callee takes
		}
	}
	w.try(i.End())
}

// try follows the path from at if it looks like code as far as it is sure.
func (w *walk) try(at arch.Addr) bool {
	if _, known := w.insns[at]; known {
		return true
	}
	if w.tried[at] || !w.fn.Range.Contains(at) {
		return false
	}
	if !w.plausible(at) {
		w.tried[at] = true
		return false
	}
	w.follow(at)
	return true
}

// plausible walks the path from at without believing it.
func (w *walk) plausible(at arch.Addr) bool {
	seen := map[arch.Addr]bool{}
	inside := map[arch.Addr]bool{}
	todo := []arch.Addr{at}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, known := w.insns[at]; known || seen[at] {
			continue
		}
		if !w.fn.Range.Contains(at) || w.inside[at] || inside[at] || !w.spend() {
			return false
		}
		i, err := w.decode(at)
		if err != nil || w.host.Improbable(i) {
			return false
		}
		for a := at; a < i.End(); a++ {
			if _, known := w.insns[a]; known || seen[a] {
				return false // it swallows another's beginning
			}
			inside[a] = a != at
		}
		seen[at] = true
		for _, to := range w.surely(i) {
			switch {
			case w.fn.Range.Contains(to):
				todo = append(todo, to)
			case to == i.End() || !w.fn.IsCode(to):
				return false
			}
		}
	}
	return true
}

// table follows the targets of the indirect jump at at. It tells whether they are known.
func (w *walk) table(at arch.Addr) bool {
	t, ok := w.host.JumpTable(w.before(at, window))
	if ok && t.Size == 0 {
		return w.try(t.Base) || w.fn.IsCode(t.Base)
	}
	if !ok || w.inside[t.Base] {
		return false
	}
	if _, code := w.insns[t.Base]; code {
		return false
	}
	most := t.Len
	if most <= 0 || most > maxTable {
		most = maxTable
	}
	n := 0
	for n < most && w.believe(t, n, w.try) {
		n++
	}
	resolved := n > 0 && (t.Len == 0 || n >= t.Len)
	for resolved && n < maxTable && w.believe(t, n, w.opens) { // the comparison may have been another's
		n++
	}
	return resolved
}

// believe follows entry n of t if it leads to code, in the function if accept says so.
func (w *walk) believe(t arch.JumpTable, n int, accept func(arch.Addr) bool) bool {
	if !w.spend() {
		return false
	}
	to, err := w.entry(t, n)
	if err != nil || n > 0 && w.named[t.Base.Add(int64(n*t.Size))] { // another table
		return false
	}
	if w.fn.Range.Contains(to) {
		return accept(to)
	}
	return w.fn.IsCode(to)
}

// opens follows the path from at if something known ends right in front of it, padding aside, as blocks of code do.
func (w *walk) opens(at arch.Addr) bool {
	if _, known := w.insns[at]; known {
		return true
	}
	end := at
	for end > w.fn.Range.Start && !w.inside[end-1] && w.insns[end-1].Len() == 0 {
		if end--; !w.spend() {
			return false
		}
	}
	for end < at {
		i, err := w.decode(end)
		if err != nil || !w.host.Padding(i) {
			return false
		}
		end = i.End()
	}
	return end == at && w.try(at)
}

// entry is the n-th target in t.
func (w *walk) entry(t arch.JumpTable, n int) (arch.Addr, error) {
	b := make([]byte, t.Size)
	if err := w.fn.Memory.ReadMemory(t.Base.Add(int64(n*t.Size)), b); err != nil {
		return 0, err
	}
	if t.Size == 4 {
		return t.From.Add(int64(int32(binary.LittleEndian.Uint32(b)))), nil
	}
	return arch.Addr(binary.LittleEndian.Uint64(b)), nil
}

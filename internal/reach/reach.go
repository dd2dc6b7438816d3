package reach

import (
	"cmp"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Host is an architecture that can be followed.
type Host interface {
	arch.Arch
	arch.Paths
}

// Function is the code to look at, without breakpoints and jumps of ours.
type Function struct {
	Range arch.Range
	Code  []byte // of Range
	// Entries are places where code begins, beside Range.Start.
	Entries []arch.Addr
	// Pointers lists addresses in Range that the module's data holds: code, if a jump goes by them.
	Pointers func() []arch.Addr
	// IsCode tells of an address outside of Range whether code may be there.
	IsCode func(arch.Addr) bool
	// Memory reads tables of jumps.
	Memory arch.Memory
}

// Result is what a function's bytes are.
type Result struct {
	Insns []arch.Insn // that are reached, by address; of overlapping ones only the first
	// Left lists the ranges that no path reaches, by address, without padding.
	Left []arch.Range
	// Unresolved counts indirect jumps without a known target. If there are any, Left
	// may hold code.
	Unresolved int
	// Undecodable is where reached code can't be decoded, and why.
	Undecodable []error
}

// Analyze follows the paths of a function.
func Analyze(h Host, f Function) *Result {
	w := &walk{host: h, fn: f, insns: map[arch.Addr]arch.Insn{}, inside: map[arch.Addr]bool{}, tried: map[arch.Addr]bool{}, named: map[arch.Addr]bool{}}
	w.follow(f.Range.Start)
	for _, at := range f.Entries {
		w.follow(at)
	}
	for w.guess() {
	}
	return w.result()
}

// walk is the knowledge so far.
type walk struct {
	host   Host
	fn     Function
	insns  map[arch.Addr]arch.Insn
	inside map[arch.Addr]bool // bytes of them but the first
	bad    []error

	guesses []arch.Addr        // to be tried
	tried   map[arch.Addr]bool // in vain
	jumps   []arch.Addr        // indirect, not looked at yet
	opaque  []arch.Addr        // indirect, without a table that is known
	leas    []arch.Addr        // instructions that compute an address in the function, not looked at yet
	named   map[arch.Addr]bool // addresses that instructions compute or use
	desired bool               // fn.Pointers were tried
	spent   int                // steps of guesses
}

// mostSpent is how many steps are made for guesses, beyond eight for each byte: those of one may go through the whole function.
const mostSpent = 1 << 16

// spend counts a step and reports whether it may be made. It may not once guesses have
// cost more than their findings are worth; no further guess is tried then.
func (w *walk) spend() bool {
	w.spent++
	return w.spent <= mostSpent+8*len(w.fn.Code)
}

func (w *walk) decode(at arch.Addr) (arch.Insn, error) {
	i, err := w.host.Decode(w.fn.Code[at-w.fn.Range.Start:], at)
	if err == nil && i.End() > w.fn.Range.End {
		err = arch.ErrTruncated
	}
	return i, err
}

// follow believes the path from at.
func (w *walk) follow(at arch.Addr) {
	todo := []arch.Addr{at}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, known := w.insns[at]; known || !w.fn.Range.Contains(at) {
			continue
		}
		i, err := w.decode(at)
		if err != nil {
			w.bad = append(w.bad, err)
			continue
		}
		w.know(i)
		todo = append(todo, w.surely(i)...)
	}
}

// know notes i as an instruction, and the guesses that follow from it.
func (w *walk) know(i arch.Insn) {
	w.insns[i.Addr] = i
	for a := i.Addr + 1; a < i.End(); a++ {
		w.inside[a] = true
	}
	switch i.Flow {
	case arch.FlowCall, arch.FlowIndirectCall, arch.FlowSyscall:
		w.guesses = append(w.guesses, i.Addr)
	case arch.FlowIndirectJump:
		w.jumps = append(w.jumps, i.Addr)
	}
	if i.PCRel {
		w.named[i.MemTarget] = true
	}
	if i.PCRel && w.fn.Range.Contains(i.MemTarget) {
		w.leas = append(w.leas, i.Addr)
	}
}

// surely lists where i leads for sure.
func (w *walk) surely(i arch.Insn) []arch.Addr {
	switch i.Flow {
	case arch.FlowJump:
		return []arch.Addr{i.Target}
	case arch.FlowCond:
		return []arch.Addr{i.Target, i.End()}
	case arch.FlowCall:
		return []arch.Addr{i.Target}
	case arch.FlowNext:
		return []arch.Addr{i.End()}
	}
	return nil
}

// before lists the known instructions up to the one at at, by address, at most n.
func (w *walk) before(at arch.Addr, n int) []arch.Insn {
	var list []arch.Insn
	for a := at; a >= w.fn.Range.Start && at-a < 1<<10 && len(list) < n; a-- {
		if i, ok := w.insns[a]; ok {
			list = append(list, i)
		}
	}
	slices.Reverse(list)
	return list
}

// behind lists the known instructions from the one at at, as they follow each other, at most n.
func (w *walk) behind(at arch.Addr, n int) []arch.Insn {
	var list []arch.Insn
	for i, ok := w.insns[at]; ok && len(list) < n; i, ok = w.insns[i.End()] {
		list = append(list, i)
	}
	return list
}

func (w *walk) result() *Result {
	r := &Result{Unresolved: len(w.opaque), Undecodable: w.bad}
	for _, i := range w.insns {
		if !w.inside[i.Addr] { // a jump behind a lock prefix, say
			r.Insns = append(r.Insns, i)
		}
	}
	slices.SortFunc(r.Insns, func(a, b arch.Insn) int { return cmp.Compare(a.Addr, b.Addr) })
	at := w.fn.Range.Start
	for _, i := range r.Insns {
		if i.Addr > at {
			r.leave(w, arch.Range{Start: at, End: i.Addr})
		}
		at = max(at, i.End())
	}
	if at < w.fn.Range.End {
		r.leave(w, arch.Range{Start: at, End: w.fn.Range.End})
	}
	return r
}

// leave notes the ranges that were not reached, unless they are padding.
func (r *Result) leave(w *walk, gap arch.Range) {
	for at := gap.Start; at < gap.End; {
		i, err := w.decode(at)
		if err != nil || i.End() > gap.End || !w.host.Padding(i) {
			r.Left = append(r.Left, gap)
			return
		}
		at = i.End()
	}
}

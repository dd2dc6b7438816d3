package optimize

import (
	"slices"
	"sort"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// decoder is an analysis in the making. Its slices are used again: a function's instructions take up to 64 times as much as its code.
type decoder struct {
	an      *Analysis
	fn      Function
	insns   []arch.Insn  // by address
	data    []arch.Range // between them, by address
	targets []arch.Addr  // known, sorted
	looked  int          // instructions, for data
}

var decoders = sync.Pool{New: func() any { return &decoder{} }}

// mostDecoded is how many instructions a decoder keeps room for.
const mostDecoded = 1 << 16

// put gives dc away.
func (dc *decoder) put() {
	if cap(dc.insns) > mostDecoded || cap(dc.targets) > mostDecoded {
		return
	}
	*dc = decoder{insns: dc.insns[:0], data: dc.data[:0], targets: dc.targets[:0]}
	decoders.Put(dc)
}

// finish makes dc's analysis of what was decoded.
func (dc *decoder) finish() {
	an := dc.an
	an.end = int(dc.trimmed() - an.start)
	an.heads = make(heads, (an.length+63)/64)
	for _, i := range dc.insns {
		an.heads.add(int(i.Addr - an.start))
	}
	for _, r := range dc.data {
		an.data = append(an.data, bytesAt{int(r.Start - an.start), int(r.End - an.start)})
	}
	from, _ := slices.BinarySearch(dc.targets, an.start)
	to, _ := slices.BinarySearch(dc.targets, an.at(len(an.code)))
	an.targets = make([]uint32, to-from)
	for i, t := range dc.targets[from:to] {
		an.targets[i] = uint32(t - an.start)
	}
}

// trimmed finds where the function's instructions end. Some symbols' sizes include the padding behind the function.
func (dc *decoder) trimmed() arch.Addr {
	n := len(dc.insns)
	for n > 1 && dc.an.arch.Padding(dc.insns[n-1]) && !dc.isTarget(dc.insns[n-1].Addr) {
		n--
	}
	if n == 0 || fallsThrough(dc.insns[n-1]) {
		n = len(dc.insns)
	}
	if n == 0 {
		return dc.an.start
	}
	return dc.insns[n-1].End()
}

func (dc *decoder) isTarget(at arch.Addr) bool {
	_, ok := slices.BinarySearch(dc.targets, at)
	return ok
}

// decode fills insns, data and targets.
func (dc *decoder) decode() error {
	for at := dc.fn.Range.Start; at < dc.fn.Range.End; {
		i, err := dc.an.arch.Decode(dc.an.from(at), at)
		if err == nil && i.End() <= dc.fn.Range.End {
			dc.insns = append(dc.insns, i)
			at = i.End()
			continue
		}
		if dc.looked += len(dc.insns); !dc.backOff() || dc.looked > mostLooked {
			return &Refusal{Reason: Undecodable, At: at, Err: err}
		}
		data := arch.Range{Start: dc.insns[len(dc.insns)-1].End(), End: dc.resume(at)}
		dc.data = append(dc.data, data)
		at = data.End
	}
	return dc.collect()
}

// mostLooked bounds the instructions that are searched for branches into a piece that
// may be data, summed over all such pieces.
const mostLooked = 1 << 24

// backOff takes back the instructions decoded last, as far as nothing falls through to
// them: they may be data that looks like code. It tells whether others are left.
func (dc *decoder) backOff() bool {
	n := len(dc.insns)
	for n > 0 && fallsThrough(dc.insns[n-1]) {
		n--
	}
	if n > 0 {
		dc.insns = dc.insns[:n]
	}
	return n > 0
}

// resume returns where code goes on behind data at at: at the first known target of a
// branch, or at the function's end.
func (dc *decoder) resume(at arch.Addr) arch.Addr {
	end := dc.fn.Range.End
	for _, i := range dc.insns {
		if branches(i) && i.Target > at {
			end = min(end, i.Target)
		}
	}
	for _, t := range dc.fn.Targets {
		if t > at {
			end = min(end, t)
		}
	}
	return end
}

// collect fills targets: the given ones, those of the instructions, and those that data
// would have if it were code. It refuses data that somebody branches to.
func (dc *decoder) collect() error {
	dc.targets = append(dc.targets, dc.fn.Targets...)
	for _, i := range dc.insns {
		dc.note(i)
	}
	for _, t := range dc.targets {
		if dc.isData(t) {
			return &Refusal{Reason: Undecodable, At: t}
		}
	}
	for _, r := range dc.data {
		dc.scan(r)
	}
	slices.Sort(dc.targets)
	dc.targets = slices.Compact(dc.targets)
	return nil
}

// note remembers where i leads: a branch to its target, a call also to its return address.
func (dc *decoder) note(i arch.Insn) {
	if branches(i) {
		dc.targets = append(dc.targets, i.Target)
	}
	if i.Flow == arch.FlowCall || i.Flow == arch.FlowIndirectCall {
		dc.targets = append(dc.targets, i.End())
	}
}

// scan looks for branches in data, where instructions may begin at any byte: should it be
// code, they are among those found.
func (dc *decoder) scan(r arch.Range) {
	for at := r.Start; at < r.End; at++ {
		if i, err := dc.an.arch.Decode(dc.an.from(at), at); err == nil {
			dc.note(i)
		}
	}
}

func (dc *decoder) isData(at arch.Addr) bool {
	i := sort.Search(len(dc.data), func(i int) bool { return dc.data[i].End > at })
	return i < len(dc.data) && dc.data[i].Contains(at)
}

// branches reports whether i may lead to i.Target.
func branches(i arch.Insn) bool {
	return i.Flow == arch.FlowJump || i.Flow == arch.FlowCond || i.Flow == arch.FlowCall
}

// fallsThrough reports whether a thread that has executed i may be at i.End() next. A
// call is taken to return.
func fallsThrough(i arch.Insn) bool {
	switch i.Flow {
	case arch.FlowJump, arch.FlowIndirectJump, arch.FlowReturn, arch.FlowTrap, arch.FlowFar:
		return false
	}
	return true
}

package optimize

import (
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
)

// decode fills insns, data and targets.
func (an *Analysis) decode() error {
	an.insns = make([]arch.Insn, 0, an.fn.Range.Len()/4)
	for at := an.fn.Range.Start; at < an.fn.Range.End; {
		i, err := an.arch.Decode(an.from(at), at)
		if err == nil && i.End() <= an.fn.Range.End {
			an.insns = append(an.insns, i)
			at = i.End()
			continue
		}
		if an.looked += len(an.insns); !an.backOff() || an.looked > mostLooked {
			return &Refusal{Reason: Undecodable, At: at, Err: err}
		}
		data := arch.Range{Start: an.insns[len(an.insns)-1].End(), End: an.resume(at)}
		an.data = append(an.data, data)
		at = data.End
	}
	return an.collect()
}

// mostLooked bounds the instructions that are searched for branches into a piece that
// may be data, summed over all such pieces.
const mostLooked = 1 << 24

// backOff takes back the instructions decoded last, as far as nothing falls through to
// them: they may be data that looks like code. It tells whether others are left.
func (an *Analysis) backOff() bool {
	n := len(an.insns)
	for n > 0 && fallsThrough(an.insns[n-1]) {
		n--
	}
	if n > 0 {
		an.insns = an.insns[:n]
	}
	return n > 0
}

// resume returns where code goes on behind data at at: at the first known target of a
// branch, or at the function's end.
func (an *Analysis) resume(at arch.Addr) arch.Addr {
	end := an.fn.Range.End
	for _, i := range an.insns {
		if branches(i) && i.Target > at {
			end = min(end, i.Target)
		}
	}
	for _, t := range an.fn.Targets {
		if t > at {
			end = min(end, t)
		}
	}
	return end
}

// collect fills targets: the given ones, those of the instructions, and those that data
// would have if it were code. It refuses data that somebody branches to.
func (an *Analysis) collect() error {
	an.targets = slices.Clone(an.fn.Targets)
	for _, i := range an.insns {
		an.note(i)
	}
	for _, t := range an.targets {
		if an.isData(t) {
			return &Refusal{Reason: Undecodable, At: t}
		}
	}
	for _, r := range an.data {
		an.scan(r)
	}
	if an.fn.Next != 0 {
		an.targets = append(an.targets, an.fn.Next)
	}
	slices.Sort(an.targets)
	an.targets = slices.Compact(an.targets)
	return nil
}

// note remembers where i leads: a branch to its target, a call also to its return address.
func (an *Analysis) note(i arch.Insn) {
	if branches(i) {
		an.targets = append(an.targets, i.Target)
	}
	if i.Flow == arch.FlowCall || i.Flow == arch.FlowIndirectCall {
		an.targets = append(an.targets, i.End())
	}
}

// scan looks for branches in data, where instructions may begin at any byte: should it be
// code, they are among those found.
func (an *Analysis) scan(r arch.Range) {
	for at := r.Start; at < r.End; at++ {
		if i, err := an.arch.Decode(an.from(at), at); err == nil {
			an.note(i)
		}
	}
}

func (an *Analysis) isData(at arch.Addr) bool {
	i := sort.Search(len(an.data), func(i int) bool { return an.data[i].End > at })
	return i < len(an.data) && an.data[i].Contains(at)
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

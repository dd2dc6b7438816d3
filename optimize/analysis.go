package optimize

import (
	"cmp"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Function is the code around a site, without breakpoints and jumps of ours.
type Function struct {
	Range arch.Range
	// Code is the bytes from Range.Start on. It should go on behind Range.End for a jump
	// and an instruction, as far as memory does.
	Code []byte
	// Next is where the next function or object begins, 0 if that is not known. Padding in
	// front of it may be overwritten.
	Next arch.Addr
	// Targets are places that threads come to, beside those that the code's direct branches
	// name: landing pads, jump tables' entries. They may lie anywhere, and need not be complete.
	Targets []arch.Addr
	// BreakpointOnly tells that nothing but a breakpoint may trap.
	BreakpointOnly bool
}

// Analysis is what the whole function says about its sites. It is immutable and safe for
// concurrent use.
type Analysis struct {
	arch    arch.Arch
	detours arch.Detours
	fn      Function
	insns   []arch.Insn // by address, up to the first data
	data    arch.Addr   // where data begins, Range.End if there is none
	end     arch.Addr   // of the code that is executed: what follows, up to data, is padding
	targets []arch.Addr // known, sorted
}

// Analyze decodes a function. The error is a *Refusal that holds for all of its sites.
func Analyze(a arch.Arch, d arch.Detours, f Function) (*Analysis, error) {
	if f.Range.Len() == 0 || uint64(len(f.Code)) < f.Range.Len() {
		return nil, &Refusal{Reason: NoFunction, At: f.Range.Start}
	}
	an := &Analysis{arch: a, detours: d, fn: f, data: f.Range.End}
	if err := an.decode(); err != nil {
		return nil, err
	}
	an.targets = append(an.targets, f.Targets...)
	if f.Next != 0 {
		an.targets = append(an.targets, f.Next)
	}
	slices.Sort(an.targets)
	an.targets = slices.Compact(an.targets)
	an.trim()
	return an, nil
}

// trim finds end. Some symbols' sizes include the padding behind the function.
func (an *Analysis) trim() {
	n := len(an.insns)
	for n > 1 && padding(an.insns[n-1].Bytes) && !an.isTarget(an.insns[n-1].Addr) {
		n--
	}
	if n > 0 && fallsThrough(an.insns[n-1]) {
		n = len(an.insns)
	}
	an.end = an.data
	if n < len(an.insns) {
		an.end = an.insns[n].Addr
	}
}

// decode fills insns and targets. What can't be decoded is taken for data if the
// instruction in front of it does not fall through.
func (an *Analysis) decode() error {
	an.insns = make([]arch.Insn, 0, an.fn.Range.Len()/4)
	for at := an.fn.Range.Start; at < an.fn.Range.End; {
		i, err := an.arch.Decode(an.from(at), at)
		if err == nil && i.End() <= an.fn.Range.End {
			an.insns = append(an.insns, i)
			an.note(i)
			at = i.End()
			continue
		}
		if n := len(an.insns); n == 0 || fallsThrough(an.insns[n-1]) {
			return &Refusal{Reason: Undecodable, At: at, Err: err}
		}
		an.data = at
		an.scanData()
		return nil
	}
	return nil
}

// note remembers where i leads: a branch to its target, and a call to its return address.
func (an *Analysis) note(i arch.Insn) {
	switch i.Flow {
	case arch.FlowJump, arch.FlowCond, arch.FlowCall:
		an.targets = append(an.targets, i.Target)
	}
	switch i.Flow {
	case arch.FlowCall, arch.FlowIndirectCall:
		an.targets = append(an.targets, i.End())
	}
}

// scanData looks for branches from behind the first data, where instructions may begin
// at any byte. It finds too many targets rather than too few.
func (an *Analysis) scanData() {
	for at := an.data; at < an.fn.Range.End; at++ {
		if i, err := an.arch.Decode(an.from(at), at); err == nil {
			an.note(i)
		}
	}
}

// from is the code from at on.
func (an *Analysis) from(at arch.Addr) []byte { return an.fn.Code[at-an.fn.Range.Start:] }

// isTarget tells that at is a known target.
func (an *Analysis) isTarget(at arch.Addr) bool {
	_, ok := slices.BinarySearch(an.targets, at)
	return ok
}

// head returns the number of the instruction at at.
func (an *Analysis) head(at arch.Addr) (n int, ok bool) {
	return slices.BinarySearchFunc(an.insns, at, func(i arch.Insn, at arch.Addr) int { return cmp.Compare(i.Addr, at) })
}

// Insns are the function's instructions by address, without data and the padding behind
// them. They must not be changed.
func (an *Analysis) Insns() []arch.Insn {
	n, _ := an.head(an.end)
	return an.insns[:n]
}

// fallsThrough tells that a thread that has executed i may be at i.End() next. A call is
// taken to return.
func fallsThrough(i arch.Insn) bool {
	switch i.Flow {
	case arch.FlowJump, arch.FlowIndirectJump, arch.FlowReturn, arch.FlowTrap, arch.FlowFar:
		return false
	}
	return true
}

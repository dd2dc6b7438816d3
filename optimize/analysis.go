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
	// Targets are further places that threads come to, beside the targets of direct
	// branches in the code: landing pads, jump tables' entries. They may lie anywhere,
	// and need not be complete.
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
	insns   []arch.Insn  // by address
	data    []arch.Range // between them, by address
	end     arch.Addr    // of the last that may be executed: up to Range.End there is padding
	targets []arch.Addr  // known, sorted
	looked  int          // instructions, for data
}

// Analyze decodes a function. The error is a *Refusal that holds for all of its sites.
func Analyze(a arch.Arch, d arch.Detours, f Function) (*Analysis, error) {
	if f.Range.Len() == 0 || uint64(len(f.Code)) < f.Range.Len() {
		return nil, &Refusal{Reason: NoFunction, At: f.Range.Start}
	}
	an := &Analysis{arch: a, detours: d, fn: f}
	if err := an.decode(); err != nil {
		return nil, err
	}
	an.trim()
	return an, nil
}

// trim finds end. Some symbols' sizes include the padding behind the function.
func (an *Analysis) trim() {
	n := len(an.insns)
	for n > 1 && an.arch.Padding(an.insns[n-1]) && !an.isTarget(an.insns[n-1].Addr) {
		n--
	}
	if n == 0 || fallsThrough(an.insns[n-1]) {
		n = len(an.insns)
	}
	if n > 0 {
		an.end = an.insns[n-1].End()
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
	n := len(an.insns)
	for n > 0 && an.insns[n-1].Addr >= an.end {
		n--
	}
	return an.insns[:n]
}

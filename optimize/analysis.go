package optimize

import (
	"math/bits"
	"slices"
	"sort"

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
// concurrent use. It is small, and nothing in it depends on where the function lies: an instruction is decoded again when it is asked for.
type Analysis struct {
	arch           arch.Arch
	detours        arch.Detours
	start          arch.Addr
	code           []byte    // from start on, with what follows the function
	length         int       // of the function
	next           int       // where Function.Next is; 0 if that is not known
	breakpointOnly bool      // Function.BreakpointOnly
	heads          heads     // where instructions begin
	data           []bytesAt // between them, by place
	end            int       // of the last that may be executed: up to length there is padding
	targets        []uint32  // that are known in code, sorted
}

// bytesAt is a stretch of a function, by offsets.
type bytesAt struct{ from, to int }

// heads is a set of offsets.
type heads []uint64

func (h heads) add(at int) { h[at/64] |= 1 << (at % 64) }

func (h heads) has(at int) bool { return at >= 0 && at/64 < len(h) && h[at/64]>>(at%64)&1 != 0 }

// before is the last one in front of at, -1 if there is none.
func (h heads) before(at int) int {
	for at--; at >= 0; at = at&^63 - 1 {
		if w := h[at/64] << (63 - at%64); w != 0 {
			return at - bits.LeadingZeros64(w)
		}
	}
	return -1
}

// Analyze decodes a function. The error is a *Refusal that holds for all of its sites. Code must not change any more.
func Analyze(a arch.Arch, d arch.Detours, f Function) (*Analysis, error) {
	if f.Range.Len() == 0 || uint64(len(f.Code)) < f.Range.Len() {
		return nil, &Refusal{Reason: NoFunction, At: f.Range.Start}
	}
	an := &Analysis{arch: a, detours: d, start: f.Range.Start, code: f.Code, length: int(f.Range.Len()), breakpointOnly: f.BreakpointOnly}
	an = an.Before(f.Next)
	dc := decoders.Get().(*decoder)
	defer dc.put()
	dc.an, dc.fn = an, f
	if err := dc.decode(); err != nil {
		return nil, err
	}
	dc.finish()
	return an, nil
}

// moved is what an says about the same code where it begins at start. Such code has the same alignment there.
func (an *Analysis) moved(start arch.Addr) *Analysis {
	there := *an
	there.start = start
	return &there
}

// Before is what an says if the next function or object begins at next, 0 if that is not known. Only sites depend on it whose jump would end behind
// the function.
func (an *Analysis) Before(next arch.Addr) *Analysis {
	there := *an
	there.next = 0
	if next != 0 {
		there.next = int(next - an.start)
	}
	return &there
}

// at is the address of an offset.
func (an *Analysis) at(offset int) arch.Addr { return an.start + arch.Addr(offset) }

// offset is that of an address. One that is not in the code has one that is not either.
func (an *Analysis) offset(at arch.Addr) int {
	if o := uint64(at - an.start); o < uint64(len(an.code)) {
		return int(o)
	}
	return len(an.code)
}

// from is the code from at on.
func (an *Analysis) from(at arch.Addr) []byte { return an.code[at-an.start:] }

// insn is the instruction that begins at an offset, one of heads.
func (an *Analysis) insn(offset int) arch.Insn {
	i, _ := an.arch.Decode(an.code[offset:], an.at(offset)) // it was decoded before
	return i
}

// isTarget tells that at is a known target.
func (an *Analysis) isTarget(at arch.Addr) bool {
	o := an.offset(at)
	_, ok := slices.BinarySearch(an.targets, uint32(o))
	return ok || an.next > 0 && o == an.next
}

func (an *Analysis) isData(at arch.Addr) bool {
	o := an.offset(at)
	i := sort.Search(len(an.data), func(i int) bool { return an.data[i].to > o })
	return i < len(an.data) && an.data[i].from <= o
}

// Insns are the function's instructions by address, without data and the padding behind
// them.
func (an *Analysis) Insns() (all []arch.Insn) {
	for o := range an.end {
		if an.heads.has(o) {
			all = append(all, an.insn(o))
		}
	}
	return all
}

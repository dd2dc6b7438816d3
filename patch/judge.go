package patch

import (
	"bytes"

	"github.com/gokprobe/gokprobe/arch"
)

// # Targets that patch themselves
//
// A target may write over its own code: a hook over a function's beginning, an operand,
// one byte. It does not know of a patch of ours there. The bytes that it did not write
// are still ours, and would stay among its code. Some bytes may be equal by chance, so
// their position decides whose they are:
//
//   - Bytes between two that are certainly the target's are the target's: it writes in
//     one piece.
//   - If the target wrote the first byte, it wrote whole instructions. Its bytes reach
//     to the end of the instruction that holds its last certain byte; the bytes behind
//     that are ours. Three or more bytes behind the last certain one that equal ours
//     are no accident: they are ours in any case.
//   - If the first byte equals ours, and the bytes make a jump to a place where a jump
//     of the target may lead, the jump is the target's: a hook begins as our jump does.
//     Otherwise every byte that equals ours is ours.
//
// So one case is judged wrongly: a target writes a whole operand, and its value happens
// to make a jump to the beginning of some code. It is taken for a jump.

// Judge tells which bytes others have written over a patch. Without its functions, all
// bytes of such code count as theirs.
type Judge struct {
	Trap   []byte                                             // that others may write over code: of one byte, else there is none
	Decode func(code []byte, at arch.Addr) (arch.Insn, error) // as in arch.Arch
	Leads  func(to arch.Addr) bool                            // reports whether a jump of the target may lead there
}

// without returns now without our bytes: want is the code to write there instead. left
// reports whether any byte of now is ours.
func (j Judge) without(e Entry, now []byte) (want []byte, left bool) {
	s := Classify(e.Original, e.Replacement, now, j.Trap)
	if s != Foreign {
		return without(e.Original, e.Replacement, now), s.Left()
	}
	start, end := j.written(e, now)
	want = bytes.Clone(now)
	for i, b := range now {
		if (i < start || i >= end) && b == e.Replacement[i] {
			want[i] = e.Original[i]
		}
	}
	return want, !bytes.Equal(want, now)
}

// written returns the range of now's bytes that the target has written. At least one
// byte of now is neither ours nor the original.
func (j Judge) written(e Entry, now []byte) (start, end int) {
	all := len(now)
	if j.Decode == nil || all == 1 || j.trap(now[0]) && now[0] != e.Replacement[0] { // somebody is writing there just now, as the kernel does
		return 0, all
	}
	start, end = all, 0
	for i, b := range now { // a breakpoint may be a third's
		if b != e.Replacement[i] && !j.trap(b) {
			start, end = min(start, i), i+1
		}
	}
	if start > 0 {
		insn, err := j.Decode(now, e.At)
		if err == nil && insn.Len() == all && insn.Flow == arch.FlowJump && (j.Leads == nil || j.Leads(insn.Target)) {
			return 0, all
		}
		return start, end
	}
	const noAccident = 3
	if all-end >= noAccident {
		return 0, end
	}
	for n := 0; n < end; {
		insn, err := j.Decode(now[n:], e.At+arch.Addr(n))
		if err != nil { // it goes on behind, or is none
			return 0, all
		}
		n += insn.Len()
		start = n
	}
	return 0, start
}

func (j Judge) trap(b byte) bool { return len(j.Trap) == 1 && b == j.Trap[0] }

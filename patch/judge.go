package patch

import (
	"bytes"

	"github.com/gokprobe/gokprobe/arch"
)

// # Programs that patch themselves
//
// A program writes over its own code: a hook over a function's beginning, an operand, one byte. It knows nothing of a patch of ours in that place, so what it
// has not written of it is still ours, and would stay among its code. Of five bytes some may be the same by chance, so where they lie decides:
//
//   - Bytes between those that are certainly the program's are the program's: it writes in one piece.
//   - Where it has written the first byte, it has written whole instructions: its own reach to the end of the one that the last certain byte
//     lies in. What follows is ours. Three bytes and more behind the last certain one are no accident: they are ours in any case.
//   - Where the first byte is ours still, and what stands there is a jump to where one of the program's may lead, it is the program's: a hook begins as
//     our jump does. Else all that looks like ours is.
//
// So an operand that is written over as a whole, and by accident makes a jump to the beginning of some code, is taken for a jump.

// Judge tells what others have put in the place of a patch. Without its functions code that others have written is all theirs.
type Judge struct {
	Trap   []byte                                             // that others may write over code: of one byte, else there is none
	Decode func(code []byte, at arch.Addr) (arch.Insn, error) // as in arch.Arch
	Leads  func(to arch.Addr) bool                            // whether a jump of the program's may lead there
}

// without is what is to stand in place of now when nothing of ours does. left tells that something of ours stands in now.
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

// written is which of now's bytes, some of which are neither ours nor what stood there, are the program's.
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

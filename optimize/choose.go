package optimize

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Choice is the ways to optimize a site.
type Choice struct {
	Options []Option // at least one, the preferred first
}

// Option is one way to optimize a site: the bytes that its jump may have, and the
// instructions that it displaces.
type Option struct {
	Pattern arch.Pattern
	Insns   []arch.Insn // the displaced instructions, which follow each other
	Heads   []arch.Addr // where the jump has bytes that trap: at displaced instructions
	// Kept is the offset in the jump from which on its bytes are the original ones; the
	// length of the jump if none are.
	Kept int
}

// End is where the code goes on behind the displaced instructions.
func (o *Option) End() arch.Addr { return o.Insns[len(o.Insns)-1].End() }

// site describes the bytes that a jump would overwrite.
type site struct {
	at     arch.Addr
	length int         // of the jump
	insns  []arch.Insn // that begin in it, padding aside
	heads  []arch.Addr // insns without the first
	cuts   []int       // offsets > 0 from which on bytes may be kept: heads, and the end of insns
	limit  int         // no more than that many bytes may change
}

// Site decides on the instruction at at. The error is a *Refusal.
func (an *Analysis) Site(at arch.Addr) (*Choice, error) {
	o := an.offset(at)
	switch {
	case o >= an.length:
		return nil, &Refusal{Reason: NoFunction, At: at}
	case an.isData(at):
		return nil, &Refusal{Reason: InData, At: at}
	case !an.heads.has(o):
		return nil, &Refusal{Reason: NotAHead, At: at}
	}
	first := an.insn(o)
	s := site{at: at, length: an.detours.JumpLen(), insns: make([]arch.Insn, 0, mostDisplaced), heads: make([]arch.Addr, 0, mostDisplaced)}
	s.limit = s.length
	if err := an.detours.Displaceable(first); err != nil {
		return nil, &Refusal{Reason: NoCopy, At: at, Err: err}
	}
	if len(an.from(at)) < s.length {
		return nil, &Refusal{Reason: Ends, At: at + arch.Addr(len(an.from(at)))}
	}
	an.displaced(&s, first)
	an.behind(&s)
	if t, bad := an.middle(&s); bad {
		return nil, &Refusal{Reason: IntoMiddle, At: t}
	}
	choices := s.choices()
	c := &Choice{Options: make([]Option, 0, 2*len(choices))}
	if torn, ok := an.detours.TrapsBehind(first); ok {
		for _, kept := range choices {
			o := an.option(&s, kept)
			o.Pattern.Byte[1+len(o.Pattern.Byte)-s.length] = torn
			c.Options = append(c.Options, o)
		}
	}
	for _, kept := range choices {
		c.Options = append(c.Options, an.option(&s, kept))
	}
	return c, nil
}

// mostDisplaced is how many instructions begin within a jump as a rule.
const mostDisplaced = 5

// displaced collects the instructions from i on that begin within the jump, and
// lowers the limit to the first that must stay.
func (an *Analysis) displaced(s *site, i arch.Insn) {
	for {
		s.insns = append(s.insns, i)
		offset, o := int(i.End()-s.at), an.offset(i.End())
		if offset >= s.length || !an.heads.has(o) || an.offset(s.at) < an.end && an.end <= o {
			return
		}
		i = an.insn(o)
		s.heads = append(s.heads, i.Addr)
		s.cuts = append(s.cuts, offset)
		if an.mustStay(i) {
			s.limit = min(s.limit, offset)
		}
	}
}

// mustStay reports whether i, which is not the first, must keep its bytes:
// many threads may come to it, or a copy can't replace it.
func (an *Analysis) mustStay(i arch.Insn) bool {
	return an.isTarget(i.Addr) || an.detached(i) && !an.arch.Padding(i) || an.detours.Displaceable(i) != nil
}

// detached reports whether no thread falls through to i. Unless it is
// padding, threads then come to it by a branch, perhaps one that we don't know.
func (an *Analysis) detached(i arch.Insn) bool {
	for o := an.heads.before(an.offset(i.Addr)); o >= 0; o = an.heads.before(o) {
		if before := an.insn(o); !an.arch.Padding(before) {
			return !fallsThrough(before)
		}
	}
	return false
}

// behind handles displaced instructions that reach the end of the code before the jump
// ends. Unless padding follows, it lowers the limit to their end.
func (an *Analysis) behind(s *site) {
	last := s.insns[len(s.insns)-1]
	end := int(last.End() - s.at)
	if end >= s.length {
		return
	}
	s.cuts = append(s.cuts, end)
	free := 0
	if !fallsThrough(last) && an.offset(last.End()) == an.end && !an.isData(an.at(an.length-1)) && an.next != 0 {
		free = an.padding(last.End(), s.at+arch.Addr(s.length))
	}
	if end+free < s.length {
		s.limit = min(s.limit, end)
	}
}

// functionAlign is the alignment of functions. A function that no symbol names may begin
// at a multiple of it, even with something that looks like padding.
const functionAlign = 16

// padding counts the bytes from at on, up to end, that are padding behind a function.
func (an *Analysis) padding(at, end arch.Addr) int {
	start := at
	next := an.at(an.next)
	for at < min(end, next) {
		i, err := an.arch.Decode(an.from(at), at)
		if err != nil || !an.arch.Padding(i) || at%functionAlign == 0 && i.Flow != arch.FlowTrap {
			break
		}
		at = min(i.End(), next)
	}
	return int(at - start)
}

// middle looks for a known target within the jump at which no displaced instruction
// begins and from which bytes can't be kept.
func (an *Analysis) middle(s *site) (arch.Addr, bool) {
	for offset := 1; offset < s.length; offset++ {
		t := s.at + arch.Addr(offset)
		if !an.isTarget(t) || s.isHead(t) {
			continue
		}
		kept := 0
		for _, cut := range s.cuts {
			if cut <= offset {
				kept = cut
			}
		}
		if kept == 0 {
			return t, true
		}
		s.limit = min(s.limit, kept)
	}
	return 0, false
}

func (s *site) isHead(at arch.Addr) bool {
	return slices.ContainsFunc(s.insns, func(i arch.Insn) bool { return i.Addr == at })
}

// choices lists how many bytes may change, the most first.
func (s *site) choices() []int {
	var all []int
	if s.limit == s.length {
		all = append(all, s.length)
	}
	for n := len(s.cuts) - 1; n >= 0; n-- {
		if s.cuts[n] <= s.limit && (len(all) == 0 || s.cuts[n] < all[len(all)-1]) {
			all = append(all, s.cuts[n])
		}
	}
	return all
}

// option is the way that keeps all bytes from kept on.
func (an *Analysis) option(s *site, kept int) Option {
	o := Option{Kept: kept, Pattern: arch.Pattern{From: s.at + arch.Addr(s.length)}}
	opcode := s.length - len(o.Pattern.Byte)
	for k := range o.Pattern.Byte {
		o.Pattern.Byte[k] = arch.AnyByte
		if offset := opcode + k; offset >= kept {
			o.Pattern.Byte[k] = arch.Bytes(an.from(s.at)[offset])
		}
	}
	trap := an.detours.TrapBytes(true)
	for _, i := range s.insns[1:] {
		k, own := int(i.Addr-s.at)-opcode, arch.Bytes(i.Bytes[0])
		for w := range trap {
			o.Pattern.Others[k][w] = trap[w] | own[w]
		}
	}
	n := 0
	for ; n < len(s.insns); n++ {
		offset := int(s.insns[n].Addr - s.at)
		if offset >= kept {
			break
		}
		if offset > 0 {
			last := offset == s.length-1
			o.Pattern.Byte[offset-opcode] = an.detours.TrapBytes(an.breakpointOnly || !last)
		}
	}
	o.Insns, o.Heads = s.insns[:n:n], s.heads[:n-1:n-1] // those of all options begin with the same ones
	return o
}

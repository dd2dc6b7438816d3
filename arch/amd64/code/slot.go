package code

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// A slot has two halves, one for each entrance. n is the instruction's length;
// the rest is int3.
//
//	+0     copy
//	+n     e9 rel32    jmp to the successor
//	+32    copy
//	+32+n  cc          int3
//
// The first half is int3 only if the plan must step. If it is emulated or a system
// call, the first half is what Alone generates, if that can be. A relative branch is
// copied as it is: the place where its copy goes tells where it would have gone. xbegin
// is copied twice, with different displacements, since the breakpoint behind the second
// copy aborts the transaction. The first copy aborts to the original's place, the
// second one to that breakpoint.
const (
	slotSize = 64
	stepHalf = 32
	jmpLen   = 5
)

// Assemble generates the slot at addr for p. It returns an error that wraps
// arch.ErrReach if rip-relative memory or the way back is out of a rel32's reach.
func (Arch) Assemble(p arch.Plan, addr arch.Addr) (*arch.Slot, error) {
	parts, err := amd64.PartsOf(p.Insn)
	if err != nil {
		return nil, fmt.Errorf("slot at %s: %w", addr, err)
	}
	s := &arch.Slot{Addr: addr, Insn: p.Insn, Code: make([]byte, slotSize), Next: p.Insn.End()}
	for i := range s.Code {
		s.Code[i] = 0xcc
	}
	s.Step = addr + stepHalf
	s.Trap = s.Step.Add(int64(p.Insn.Len()))
	if err := writeCopy(s.Code[stepHalf:], &parts, p.Insn.Bytes, s.Step); err != nil {
		return nil, fmt.Errorf("slot at %s: operand of the instruction at %s: %w", addr, p.Insn.Addr, err)
	}
	transaction := parts.Kind == amd64.KindTransaction
	if transaction {
		clear(s.Code[stepHalf+parts.Imm:][:parts.ImmLen])
		s.Next = p.Insn.Target
	}
	switch {
	case p.MustStep != "":
		s.Alone = s.Step
		return s, nil
	case p.Method == arch.Emulated, p.Method == arch.SystemCall:
		if code, err := (Arch{}).Alone(addr, p); err == nil && copy(s.Code[:stepHalf], code) == len(code) {
			s.Alone = addr
		}
		return s, nil
	}
	s.Boost, s.Alone = addr, addr
	if err := writeCopy(s.Code, &parts, p.Insn.Bytes, addr); err != nil {
		return nil, fmt.Errorf("slot at %s: operand of the instruction at %s: %w", addr, p.Insn.Addr, err)
	}
	if transaction {
		if err := amd64.PutRel32(s.Code[parts.Imm:], p.Insn.Target, addr.Add(int64(p.Insn.Len()))); err != nil {
			return nil, fmt.Errorf("slot at %s: abort address of the instruction at %s: %w", addr, p.Insn.Addr, err)
		}
	}
	n := p.Insn.Len()
	jmp := s.Code[n : n+jmpLen]
	jmp[0] = 0xe9
	if err := amd64.PutRel32(jmp[1:], p.Insn.End(), addr.Add(int64(n+jmpLen))); err != nil {
		return nil, fmt.Errorf("slot at %s: way back to %s: %w", addr, p.Insn.End(), err)
	}
	return s, nil
}

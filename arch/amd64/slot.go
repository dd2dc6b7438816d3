package amd64

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// A slot has two halves, one for each entrance. n is the instruction's length;
// the rest is int3.
//
//	+0     copy
//	+n     e9 rel32    jmp to the successor
//	+32    copy
//	+32+n  cc          int3
//
// The first half is int3 only if the plan must step. If it is emulated or a system call, the
// first half is what Alone generates, if that can be.
// A relative branch is copied as it is: where its copy goes says where it would have
// gone. xbegin is copied twice with different displacements, since the breakpoint
// behind the second copy aborts the transaction: the first copy aborts to where the
// original would, the second one to that breakpoint.
const (
	slotSize = 64
	stepHalf = 32
	jmpLen   = 5
)

// Assemble generates the slot at addr for p. It returns an error that wraps
// arch.ErrReach if rip-relative memory or the way back is out of a rel32's reach.
func (Arch) Assemble(p arch.Plan, addr arch.Addr) (*arch.Slot, error) {
	f, err := parse(p.Insn.Bytes)
	if err != nil {
		return nil, fmt.Errorf("slot at %s: %w", addr, err)
	}
	s := &arch.Slot{Addr: addr, Insn: p.Insn, Code: make([]byte, slotSize), Next: p.Insn.End()}
	for i := range s.Code {
		s.Code[i] = 0xcc
	}
	s.Step = addr + stepHalf
	s.Trap = s.Step.Add(int64(f.len))
	if err := writeCopy(s.Code[stepHalf:], &f, p.Insn, s.Step); err != nil {
		return nil, fmt.Errorf("slot at %s: operand of the instruction at %s: %w", addr, p.Insn.Addr, err)
	}
	transaction := f.class(p.Insn.Bytes) == transaction
	if transaction {
		clear(s.Code[stepHalf+f.imm:][:f.immLen])
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
	if err := writeCopy(s.Code, &f, p.Insn, addr); err != nil {
		return nil, fmt.Errorf("slot at %s: operand of the instruction at %s: %w", addr, p.Insn.Addr, err)
	}
	if transaction {
		if err := PutRel32(s.Code[f.imm:], p.Insn.Target, addr.Add(int64(f.len))); err != nil {
			return nil, fmt.Errorf("slot at %s: abort address of the instruction at %s: %w", addr, p.Insn.Addr, err)
		}
	}
	jmp := s.Code[f.len : f.len+jmpLen]
	jmp[0] = 0xe9
	if err := PutRel32(jmp[1:], p.Insn.End(), addr.Add(int64(f.len+jmpLen))); err != nil {
		return nil, fmt.Errorf("slot at %s: way back to %s: %w", addr, p.Insn.End(), err)
	}
	return s, nil
}

// writeCopy puts the instruction into dst, which stands at at, so that it names
// the same memory.
func writeCopy(dst []byte, f *form, i arch.Insn, at arch.Addr) error {
	copy(dst, i.Bytes)
	switch {
	case !f.ripRel:
		return nil
	case f.addrsize: // only 32 bits of the sum count
		binary.LittleEndian.PutUint32(dst[f.disp:], uint32(i.MemTarget-at)-uint32(f.len))
		return nil
	}
	return PutRel32(dst[f.disp:], i.MemTarget, at.Add(int64(f.len)))
}

package amd64

import (
	"encoding/binary"
	"fmt"
	"math"

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
// If the plan must step, the first half is int3 only.
const (
	slotSize = 64
	stepHalf = 32
	jmpLen   = 5
)

// Assemble generates the slot at addr for p. It returns an error that wraps
// arch.ErrReach if rip-relative memory or the way back is out of a rel32's reach,
// and arch.ErrNotRelocatable if p is Emulated.
func (Arch) Assemble(p arch.Plan, addr arch.Addr) (*arch.Slot, error) {
	if p.Method == arch.Emulated {
		return nil, fmt.Errorf("slot at %s: %w: it is emulated", addr, arch.ErrNotRelocatable)
	}
	f, err := parse(p.Insn.Bytes)
	if err != nil {
		return nil, fmt.Errorf("slot at %s: %w", addr, err)
	}
	s := &arch.Slot{Addr: addr, Insn: p.Insn, Code: make([]byte, slotSize)}
	for i := range s.Code {
		s.Code[i] = 0xcc
	}
	s.Step = addr + stepHalf
	s.Trap = s.Step.Add(int64(f.len))
	if err := writeCopy(s.Code[stepHalf:], &f, p.Insn, s.Step); err != nil {
		return nil, fmt.Errorf("slot at %s: operand of the instruction at %s: %w", addr, p.Insn.Addr, err)
	}
	if p.MustStep != "" {
		return s, nil
	}
	s.Boost = addr
	if err := writeCopy(s.Code, &f, p.Insn, addr); err != nil {
		return nil, fmt.Errorf("slot at %s: operand of the instruction at %s: %w", addr, p.Insn.Addr, err)
	}
	jmp := s.Code[f.len : f.len+jmpLen]
	jmp[0] = 0xe9
	if err := putRel32(jmp[1:], p.Insn.End(), addr.Add(int64(f.len+jmpLen))); err != nil {
		return nil, fmt.Errorf("slot at %s: way back to %s: %w", addr, p.Insn.End(), err)
	}
	return s, nil
}

// writeCopy puts the instruction into dst, which stands at at, so that it names
// the same memory.
func writeCopy(dst []byte, f *form, i arch.Insn, at arch.Addr) error {
	copy(dst, i.Bytes)
	if !f.ripRel {
		return nil
	}
	return putRel32(dst[f.disp:], i.MemTarget, at.Add(int64(f.len)))
}

// putRel32 stores the distance from next to target.
func putRel32(dst []byte, target, next arch.Addr) error {
	d := int64(target - next)
	if d < math.MinInt32 || d > math.MaxInt32 {
		return arch.ErrReach
	}
	binary.LittleEndian.PutUint32(dst, uint32(d))
	return nil
}

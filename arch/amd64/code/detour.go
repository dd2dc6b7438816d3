package code

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

var _ arch.Detours = Arch{}

// JumpLen is 5: e9 and a 32-bit displacement.
func (Arch) JumpLen() int { return jmpLen }

// Jump is the jump at from to to. The error wraps arch.ErrReach if that is 2 GiB or more away.
func (Arch) Jump(from, to arch.Addr) ([]byte, error) {
	a := asm{at: from}
	if a.jmp(to); a.err != nil {
		return nil, fmt.Errorf("jump from %s to %s: %w", from, to, a.err)
	}
	return a.code, nil
}

// noOpcode are the one-byte opcodes without operands that 64-bit mode does not have (SDM vol. 2D
// table A-2; vol. 2B UD for d6). Those that have operands, and d5, which is a prefix
// now, are left out.
var noOpcode = []byte{0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0xce, 0xd6}

// TrapBytes are int3 and, unless breakpointOnly, the opcodes that raise #UD (SIGILL).
func (Arch) TrapBytes(breakpointOnly bool) arch.ByteSet {
	if breakpointOnly {
		return arch.Bytes(0xcc)
	}
	return arch.Bytes(append([]byte{0xcc}, noOpcode...)...)
}

// TrapsBehind is int3 behind a REX prefix, an operand-size, segment or repeat prefix,
// which it ignores (SDM vol. 2A §2.1.1, INT3). VEX, EVEX and REX2 prefixes do not
// count. Neither does lock: together they are no instruction.
func (Arch) TrapsBehind(i arch.Insn) (set arch.ByteSet, ok bool) {
	if i.Len() < 2 {
		return set, false
	}
	switch b := i.Bytes[0]; {
	case b&0xf0 == 0x40, b == 0x66, b == 0xf2, b == 0xf3, b == 0x2e, b == 0x36, b == 0x3e, b == 0x26, b == 0x64, b == 0x65:
		return arch.Bytes(0xcc), true
	}
	return set, false
}

// A detour begins with its switch:
//
//	+0  eb 06, 00 or 05  jmp to the body, to
//	+2  e9 rel32         jmp to the first copy, or to
//	+7  cc               int3
//	+8  body
const (
	switchOn  = jmpLen + 1
	switchOff = 0
	switchAsk = jmpLen
)

// DetourLen is the length in bytes of what AssembleDetour generates anywhere, be its operands
// in reach of there or not.
func (Arch) DetourLen(insns []arch.Insn, b arch.Body) (int, error) {
	copies, err := displace(insns)
	if err != nil {
		return 0, err
	}
	d, err := assembleDetour(insns[0].Addr, copies, b, arch.TailCode{})
	if d == nil {
		return 0, err
	}
	return len(d.Code) + len(tailOf(b).Code), nil
}

// AssembleDetour generates a detour at at. Without a body there is no switch either: its
// first byte is that of the first copy. The error wraps arch.ErrReach if something can't be
// reached from there, or what Displaceable says.
func (Arch) AssembleDetour(at arch.Addr, insns []arch.Insn, b arch.Body) (*arch.Detour, error) {
	copies, err := displace(insns)
	if err != nil {
		return nil, err
	}
	d, err := assembleDetour(at, copies, b, tailOf(b))
	if err != nil {
		return nil, err
	}
	return d, nil
}

var errGap = errors.New("the instructions to displace do not follow each other")

func displace(insns []arch.Insn) ([]amd64.Parts, error) {
	if len(insns) == 0 {
		return nil, fmt.Errorf("%w: there is none", errGap)
	}
	copies := make([]amd64.Parts, len(insns))
	for k, i := range insns {
		if k > 0 && i.Addr != insns[k-1].End() {
			return nil, fmt.Errorf("%w: %s is not %s", errGap, i.Addr, insns[k-1].End())
		}
		var err error
		if copies[k], err = amd64.Displaced(i); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

// assembleDetour generates a detour; with an error it is nil unless only its length is
// of use.
func assembleDetour(at arch.Addr, copies []amd64.Parts, b arch.Body, tail arch.TailCode) (*arch.Detour, error) {
	const usual = 128 // bytes: a body that counts, and some instructions
	a := &asm{at: at, code: make([]byte, 0, usual+len(tail.Code))}
	d := &arch.Detour{Addr: at, Pieces: make([]arch.Piece, 0, len(copies))}
	if b != nil {
		if err := putBody(a, d, b); err != nil {
			return nil, fmt.Errorf("detour at %s: %w", at, err)
		}
	}
	for k := range copies {
		p := arch.Piece{Insn: copies[k].Insn, At: a.here()}
		p.Inner = copyTo(a, &copies[k])
		p.Len = int(a.here() - p.At)
		d.Pieces = append(d.Pieces, p)
		d.End = p.Insn.End()
	}
	if len(tail.Code) > 0 {
		putTail(a, d, tail)
	}
	d.Back = a.here()
	a.jmp(d.End)
	d.Code = a.code
	if a.err != nil {
		return d, fmt.Errorf("detour at %s for %s: %w", at, copies[0].Insn.Addr, a.err)
	}
	return d, nil
}

// tailOf is empty for a body that has none.
func tailOf(b arch.Body) arch.TailCode {
	if t, ok := b.(arch.Tailed); ok {
		return t.Tail()
	}
	return arch.TailCode{}
}

// putTail makes a tail a part of the last copy, which a thread may leave anywhere.
func putTail(a *asm, d *arch.Detour, t arch.TailCode) {
	begin := a.here()
	a.emit(t.Code...)
	last := &d.Pieces[len(d.Pieces)-1]
	last.Inner = slices.Grow(last.Inner, len(t.Starts))
	for _, at := range t.Starts {
		last.Inner = append(last.Inner, arch.Inner{At: begin + at, Orig: d.End})
	}
	last.Len += len(t.Code)
	for _, stop := range t.Stops {
		stop.At, stop.To = begin+stop.At, begin+stop.To
		d.Stops = append(d.Stops, stop)
	}
}

// putBody generates the switch and the body.
func putBody(a *asm, d *arch.Detour, b arch.Body) error {
	d.On, d.Off, d.Ask, d.Switch = switchOn, switchOff, switchAsk, a.here()+1
	a.emit(0xeb, switchOn)
	past := a.here()
	a.emit(0xe9, 0, 0, 0, 0)
	d.Trap = a.here()
	a.emit(0xcc)
	d.Body.Start = a.here()
	var err error
	if d.BodyCode, err = b.Assemble(d.Body.Start); err != nil && (!errors.Is(err, arch.ErrReach) || d.BodyCode.Code == nil) {
		return err
	}
	if a.err == nil {
		a.err = err
	}
	a.emit(d.BodyCode.Code...)
	d.Body.End = a.here()
	for i := range d.Stops {
		if d.Stops[i].To == 0 {
			d.Stops[i].To = d.Body.End
		}
	}
	return amd64.PutRel32(a.code[past-a.at+1:], d.Body.End, d.Trap)
}

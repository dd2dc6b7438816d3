package code

import (
	"bytes"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// writeCopy puts code into dst, which stands at at. code is p's bytes, changed or not;
// displacements are adjusted so that they name the same memory.
func writeCopy(dst []byte, p *amd64.Parts, code []byte, at arch.Addr) error {
	copy(dst, code)
	switch {
	case !p.Insn.PCRel:
		return nil
	case p.Wraps:
		binary.LittleEndian.PutUint32(dst[p.Disp:], uint32(p.Insn.MemTarget-at)-uint32(len(code)))
		return nil
	}
	return amd64.PutRel32(dst[p.Disp:], p.Insn.MemTarget, at.Add(int64(len(code))))
}

// copyTo generates code that does at a's place the same as the original at its own. A
// call pushes the original's return address, and every direct branch leads to the
// original's target, even if that is a displaced instruction itself: a probe may be
// there. The result is the places inside the copy.
func copyTo(a *asm, p *amd64.Parts) []arch.Inner {
	i := p.Insn
	switch p.Kind {
	case amd64.KindJump:
		a.jmp(i.Target)
	case amd64.KindCondJump:
		a.jcc(p.Cond, i.Target)
	case amd64.KindLoopJump:
		return copyLoop(a, p)
	case amd64.KindCall:
		inner := pushReturn(a, i)
		a.jmp(i.Target)
		return inner
	case amd64.KindIndirectCall:
		inner := pushReturn(a, i)
		jumpLikeCall(a, p)
		return inner
	default:
		copyPlain(a, p, i.Bytes)
	}
	return nil
}

// copyPlain writes code, which is p's bytes, changed or not, with displacements
// adjusted so that it names the same memory.
func copyPlain(a *asm, p *amd64.Parts, code []byte) {
	n, at := len(a.code), a.here()
	a.emit(code...)
	if err := writeCopy(a.code[n:], p, code, at); err != nil && a.err == nil {
		a.err = err
	}
}

// copyLoop has to go further than loop and jrcxz can:
//
//	    loop 1f
//	    jmp  2f
//	1:  jmp  target
//	2:
func copyLoop(a *asm, p *amd64.Parts) []arch.Inner {
	a.emit(p.Insn.Bytes[:p.Imm]...)
	a.emit(2)
	stays := arch.Inner{At: a.here(), Orig: p.Insn.End()}
	over := a.short(0xeb)
	leaves := arch.Inner{At: a.here(), Orig: p.Insn.Target}
	a.jmp(p.Insn.Target)
	a.land(over)
	return []arch.Inner{stays, leaves}
}

// pushReturn pushes the address behind i without changing a register or flag: push
// extends the sign of its 32 bits, and where that is not the address the upper half is
// stored on its own.
func pushReturn(a *asm, i arch.Insn) []arch.Inner {
	link := uint64(i.End())
	a.emit(0x68)
	a.imm32(uint32(link))
	inner := []arch.Inner{{At: a.here(), Orig: i.Addr, Pop: 8}}
	if link == uint64(int32(link)) {
		return inner
	}
	a.emit(0xc7, 0x44, 0x24, 4) // movl $…, 4(%rsp)
	a.imm32(uint32(link >> 32))
	return append(inner, arch.Inner{At: a.here(), Orig: i.Addr, Pop: 8})
}

// jumpLikeCall is the jump to where an indirect call leads, behind pushReturn: opcode
// ff /4 instead of /2, and a displacement that counts from the stack pointer is 8 more.
func jumpLikeCall(a *asm, p *amd64.Parts) {
	code := bytes.Clone(p.Insn.Bytes)
	code[p.ModRM] ^= (2 ^ 4) << 3
	if !p.BySP {
		copyPlain(a, p, code)
		return
	}
	a.emit(code[:p.Disp]...)
	modrm, disp := &a.code[len(a.code)-2], p.SPDisp+8
	*modrm &= 0x3f
	if disp == int64(int8(disp)) {
		*modrm |= 0x40
		a.emit(byte(disp))
		return
	}
	*modrm |= 0x80
	a.imm32(uint32(disp))
}

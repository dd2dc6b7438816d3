package amd64

import (
	"golang.org/x/arch/x86/x86asm"

	"github.com/gokprobe/gokprobe/arch"
)

// MaskPointerUse is of arch.Masks, whose pointer is in rsi. It looks at the operands. Instructions with operands that are not written down need it, but for system calls: who
// makes another one sets what that is to be passed.
func (Arch) MaskPointerUse(i arch.Insn) (needs, sets bool) {
	inst, err := x86asm.Decode(i.Bytes, 64)
	if err != nil || impliesRSI[inst.Op] {
		return true, false
	}
	for k, a := range inst.Args {
		switch a := a.(type) {
		case x86asm.Reg:
			if !isRSI(a) {
				continue
			}
			switch {
			case k == 0 && (inst.Op == x86asm.XOR || inst.Op == x86asm.SUB) && inst.Args[1] == inst.Args[0] && wideRSI(a):
				return needs, true
			case k == 0 && writesWhole[inst.Op] && wideRSI(a):
				sets = true
			default:
				needs = true
			}
		case x86asm.Mem:
			needs = needs || isRSI(a.Base) || isRSI(a.Index)
		}
	}
	return needs, sets && !needs
}

func isRSI(r x86asm.Reg) bool {
	return r == x86asm.RSI || r == x86asm.ESI || r == x86asm.SI || r == x86asm.SIB
}

// wideRSI: a write of 32 bits clears the others.
func wideRSI(r x86asm.Reg) bool { return r == x86asm.RSI || r == x86asm.ESI }

var writesWhole = map[x86asm.Op]bool{x86asm.MOV: true, x86asm.LEA: true, x86asm.MOVZX: true, x86asm.MOVSX: true, x86asm.MOVSXD: true, x86asm.POP: true}

var impliesRSI = func() map[x86asm.Op]bool {
	m := map[x86asm.Op]bool{}
	for _, op := range []x86asm.Op{
		x86asm.INT, x86asm.MOVSB, x86asm.MOVSW, x86asm.MOVSD, x86asm.MOVSQ, x86asm.LODSB, x86asm.LODSW, x86asm.LODSD, x86asm.LODSQ,
		x86asm.CMPSB, x86asm.CMPSW, x86asm.CMPSD, x86asm.CMPSQ, x86asm.OUTSB, x86asm.OUTSW, x86asm.OUTSD,
	} {
		m[op] = true
	}
	return m
}()

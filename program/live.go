package program

import "github.com/cilium/ebpf/asm"

// findUnused finds results of helpers that nothing reads. It goes backwards: no jump
// leads back, so all later reads are known by then.
func (c *Checked) findUnused() {
	live := make([]uint16, len(c.Code)+1) // bit n: rn is read at or behind that instruction before it is written
	for i := len(c.Code) - 1; i >= 0; i-- {
		ins := &c.Code[i]
		after := live[i+1]
		if ins.Target >= 0 {
			if ins.OpCode.JumpOp() == asm.Ja {
				after = 0
			}
			after |= live[ins.Target]
		} else if ins.OpCode.JumpOp() == asm.Exit {
			after = 0
		}
		ins.Live = after
		if ins.Call != nil {
			ins.Call.ResultUnused = after&1 == 0
		}
		reads, writes := ins.uses()
		if c.Decides && ins.OpCode.JumpOp() == asm.Exit {
			reads = 1 // r0
		}
		live[i] = after&^writes | reads
	}
}

// uses are the registers that ins reads and that it writes, as sets of bits.
func (ins *Insn) uses() (reads, writes uint16) {
	dst, src := uint16(1)<<ins.Dst, uint16(1)<<ins.Src
	switch op := ins.OpCode; op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		return aluUses(op, dst, src), dst
	case asm.LdClass:
		return 0, dst
	case asm.LdXClass:
		return src, dst
	case asm.StClass:
		return dst, 0
	case asm.StXClass:
		return storeUses(op, dst, src)
	}
	return ins.jumpUses(dst, src), ins.clobbers()
}

func aluUses(op asm.OpCode, dst, src uint16) (reads uint16) {
	if op.ALUOp()&0xf0 != asm.Mov {
		reads = dst
	}
	if op.Source() == asm.RegSource {
		reads |= src
	}
	return reads
}

func storeUses(op asm.OpCode, dst, src uint16) (reads, writes uint16) {
	if op.Mode() != asm.AtomicMode {
		return dst | src, 0
	}
	switch a := op.AtomicOp(); {
	case a == loadAcquire:
		return src, dst
	case a == asm.CmpXchg:
		return dst | src | 1, 1
	case Fetches(a):
		return dst | src, src
	}
	return dst | src, 0
}

func (ins *Insn) jumpUses(dst, src uint16) (reads uint16) {
	switch ins.OpCode.JumpOp() {
	case asm.Ja, asm.Exit:
		return 0
	case asm.Call:
		return (1<<len(ins.Call.Args) - 1) << 1
	}
	if ins.OpCode.Source() == asm.RegSource {
		return dst | src
	}
	return dst
}

func (ins *Insn) clobbers() uint16 {
	if ins.Call != nil {
		return 1<<6 - 1 // r0 to r5
	}
	return 0
}

package optimize

// padding tells that an instruction is one that assemblers and linkers fill gaps with: int3, or nop
// in one of its lengths (SDM vol. 2B, NOP, table 4-12), prefixes included.
func padding(insn []byte) bool {
	if len(insn) == 1 && insn[0] == 0xcc {
		return true
	}
	for len(insn) > 1 && (insn[0] == 0x66 || insn[0] == 0x2e) {
		insn = insn[1:]
	}
	return insn[0] == 0x90 || len(insn) > 1 && insn[0] == 0x0f && insn[1] == 0x1f
}

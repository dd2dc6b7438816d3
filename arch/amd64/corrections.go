package amd64

// correction is what x86asm does not know, has wrong, or accepts though it can't
// run in 64-bit mode. The length is always parse's.
type correction struct {
	pattern
	// names is the mnemonic in the GNU assembler's spelling, or several for the
	// opcodes from lo on; a final * stands for the size suffix that a memory
	// operand needs. Empty if the bytes are refused or print as like says.
	names   string
	refused string // why
	like    like   // whose operands it has
	source  string // the section of the manual
}

// like is an instruction that x86asm prints with the operands of another.
type like struct {
	op      string // opcode bytes; empty to print no operands
	itself  bool   // instead of op: its own opcode, and its own mnemonic
	digit   int8   // ModRM.reg, or anyReg to keep it
	address bool   // the register has the address size
}

const anyReg = -1

// twin is the instruction with another digit that does the same.
func twin(digit int8) like { return like{itself: true, digit: digit} }

var (
	noOperands = like{}
	rm         = like{op: "\xff", digit: 0}                         // inc
	rm64       = like{op: "\xff", digit: 6}                         // push
	memory     = like{op: "\x0f\xae", digit: 7}                     // clflush
	rmToReg    = like{op: "\x0f\xaf", digit: anyReg}                // imul
	regToRM    = like{op: "\x89", digit: anyReg}                    // mov
	mmRM       = like{op: "\x0f\x6f", digit: anyReg}                // movq
	xmmRM      = like{op: "\x0f\x10", digit: anyReg}                // movups
	xmmRMImm8  = like{op: "\x0f\xc6", digit: anyReg}                // shufps
	addressReg = like{op: "\x0f\x02", digit: anyReg, address: true} // lar
)

var correctionIndex = newIndex(len(corrections), func(i int) *pattern { return &corrections[i].pattern })

// correctionFor is the first row that matches f, or nil.
func correctionFor(f *form) *correction {
	for _, n := range correctionIndex[f.space][f.op] {
		if c := &corrections[n]; c.matches(f) {
			return c
		}
	}
	return nil
}

var corrections = concat(invalidForms, undocumented, mpxCorrections, amdCorrections, legacyCorrections, systemCorrections,
	vexCorrections, amxCorrections, fp16Corrections, avx10Corrections, noSuchInstruction)

func concat[T any](tables ...[]T) (all []T) {
	for _, t := range tables {
		all = append(all, t...)
	}
	return all
}

const (
	noSuchGroup = "the opcode's group has no such member"
	memoryOnly  = "its operand must be in memory"
	vectorIndex = "a vector of addresses needs a SIB byte"
	noSIB       = 0xff &^ (1 << 4) // every ModRM.rm that no SIB byte follows
)

// noSuchInstruction closes the maps that x86asm takes for others.
var noSuchInstruction = []correction{
	{pattern{space: map3DNow, hi: 0xff}, "", "no such 3DNow! operation", noOperands, "APM vol. 3 §A.1.2"},
	{pattern{space: vexMap5, hi: 0xff}, "", "VEX opcode map 5 has no such instruction", noOperands, "SDM vol. 2D table A-7"},
	{pattern{space: vexMap7, hi: 0xff}, "", "VEX opcode map 7 has no such instruction", noOperands, "SDM vol. 2D appendix A"},
	{pattern{space: evexMap5, hi: 0xff}, "", "EVEX opcode map 5 has no such instruction", noOperands, "SDM vol. 2D table A-7"},
	{pattern{space: evexMap6, hi: 0xff}, "", "EVEX opcode map 6 has no such instruction", noOperands, "SDM vol. 2D table A-8"},
}

// invalidForms are forms that x86asm accepts and that raise #UD.
var invalidForms = []correction{
	{pattern{space: oneByte, lo: 0x8c, reg: r(6, 7)}, "", "no such segment register", noOperands, "SDM vol. 2B MOV"},
	{pattern{space: oneByte, lo: 0x8d, mod: inRegister}, "", "lea of a register", noOperands, "SDM vol. 2A LEA"},
	{pattern{space: oneByte, lo: 0x8e, reg: r(1, 6, 7)}, "", "no such segment register to load", noOperands, "SDM vol. 2B MOV"},
	{pattern{space: oneByte, lo: 0xc6, hi: 0xc7, reg: r(1, 2, 3, 4, 5, 6)}, "", noSuchGroup, noOperands, "SDM vol. 2D table A-6"},
	{pattern{space: oneByte, lo: 0xc6, hi: 0xc7, mod: inMemory, reg: r(7)}, "", noSuchGroup, noOperands, "SDM vol. 2D table A-6"},
	{pattern{space: oneByte, lo: 0xc6, hi: 0xc7, reg: r(7), rm: r(1, 2, 3, 4, 5, 6, 7)}, "", noSuchGroup, noOperands, "SDM vol. 2D table A-6"},
	{pattern{space: oneByte, lo: 0xfe, reg: r(2, 3, 4, 5, 6, 7)}, "", noSuchGroup, noOperands, "SDM vol. 2D table A-6"},
	{pattern{space: oneByte, lo: 0xff, reg: r(7)}, "", noSuchGroup, noOperands, "SDM vol. 2D table A-6"},
	{pattern{space: oneByte, lo: 0xff, mod: inRegister, reg: r(3, 5)}, "", "far transfer through a register", noOperands, "SDM vol. 2A CALL, JMP"},
	{pattern{space: map0F, lo: 0x12, hi: 0x13, pp: pp66, mod: inRegister}, "", memoryOnly, noOperands, "SDM vol. 2B MOVLPD"},
	{pattern{space: map0F, lo: 0x16, hi: 0x17, pp: pp66, mod: inRegister}, "", memoryOnly, noOperands, "SDM vol. 2B MOVHPD"},
	{pattern{space: map0F, lo: 0x13, pp: ppNone, mod: inRegister}, "", memoryOnly, noOperands, "SDM vol. 2B MOVLPS"},
	{pattern{space: map0F, lo: 0x17, pp: ppNone, mod: inRegister}, "", memoryOnly, noOperands, "SDM vol. 2B MOVHPS"},
	{pattern{space: evex0F, lo: 0x90, hi: 0x93}, "", "kmov with EVEX (APX)", noOperands, "APX Architecture Specification (355828)"},
	{pattern{space: vex0F38, lo: 0x90, hi: 0x93, pp: pp66, rm: noSIB}, "", vectorIndex, noOperands, "SDM vol. 2A §2.3.12"},
	{pattern{space: evex0F38, lo: 0x90, hi: 0x93, pp: pp66, rm: noSIB}, "", vectorIndex, noOperands, "SDM vol. 2A §2.7.11"},
	{pattern{space: evex0F38, lo: 0xa0, hi: 0xa3, pp: pp66, rm: noSIB}, "", vectorIndex, noOperands, "SDM vol. 2A §2.7.11"},
	{pattern{space: evex0F38, lo: 0xc6, hi: 0xc7, pp: pp66, rm: noSIB}, "", vectorIndex, noOperands, "SDM vol. 2A §2.7.11"},
}

const ise = "Instruction Set Extensions Programming Reference (319433)"

// legacyCorrections are instructions that programs use, without VEX or EVEX.
var legacyCorrections = []correction{
	{pattern{space: map0F, lo: 0x0d, mod: inRegister}, "nop", "", rm, "SDM vol. 2D table A-3, reserved NOP; Intel only"},
	{pattern{space: map0F, lo: 0x0d, mod: inMemory, reg: r(2)}, "prefetchwt1", "", memory, "SDM vol. 2B PREFETCHWT1"},
	{pattern{space: map0F, lo: 0x0d, mod: inMemory, reg: r(0, 3, 4, 5, 6, 7)}, "prefetch", "", memory, "APM vol. 3 PREFETCH"},
	{pattern{space: map0F, lo: 0x18, pp: ppNone, mod: inMemory, reg: r(4)}, "prefetchrst2", "", memory, ise},
	{pattern{space: map0F, lo: 0x18, pp: ppNone, mod: inMemory, reg: r(6)}, "prefetchit1", "", memory, "SDM vol. 2B PREFETCHh"},
	{pattern{space: map0F, lo: 0x18, pp: ppNone, mod: inMemory, reg: r(7)}, "prefetchit0", "", memory, "SDM vol. 2B PREFETCHh"},
	{pattern{space: map0F, lo: 0x18, mod: inRegister}, "nop", "", rm, "SDM vol. 2D table A-3, reserved NOP"},
	{pattern{space: map0F, lo: 0x18, reg: r(4, 5, 6, 7)}, "nop*", "", rm, "SDM vol. 2D table A-3, reserved NOP"},
	{pattern{space: map0F, lo: 0x19}, "nop*", "", rm, "SDM vol. 2D table A-3, reserved NOP"},
	{pattern{space: map0F, lo: 0x1a, hi: 0x1b}, "nop* nop*", "", rm, "SDM vol. 2D table A-3, reserved NOP"},
	{pattern{space: map0F, lo: 0x1c, pp: ppNone, mod: inMemory, reg: r(0)}, "cldemote", "", memory, "SDM vol. 2A CLDEMOTE"},
	{pattern{space: map0F, lo: 0x1e, pp: ppF3, mod: inRegister, reg: r(1), w: w0}, "rdsspd", "", rm, "SDM vol. 2B RDSSPD"},
	{pattern{space: map0F, lo: 0x1e, pp: ppF3, mod: inRegister, reg: r(1), w: w1}, "rdsspq", "", rm, "SDM vol. 2B RDSSPQ"},
	{pattern{space: map0F, lo: 0x1e, pp: ppF3, mod: inRegister, reg: r(7), rm: r(2)}, "endbr64", "", noOperands, "SDM vol. 2A ENDBR64"},
	{pattern{space: map0F, lo: 0x1e, pp: ppF3, mod: inRegister, reg: r(7), rm: r(3)}, "endbr32", "", noOperands, "SDM vol. 2A ENDBR32"},
	{pattern{space: map0F, lo: 0x1c, hi: 0x1f}, "nop* nop* nop* nop*", "", rm, "SDM vol. 2B NOP, vol. 2D table A-3"},

	{pattern{space: map0F, lo: 0xae, pp: ppF3, mod: inRegister, reg: r(5), w: w0}, "incsspd", "", rm, "SDM vol. 2A INCSSPD"},
	{pattern{space: map0F, lo: 0xae, pp: ppF3, mod: inRegister, reg: r(5), w: w1}, "incsspq", "", rm, "SDM vol. 2A INCSSPQ"},
	{pattern{space: map0F, lo: 0xae, pp: ppF3, reg: r(4)}, "ptwrite*", "", rm, "SDM vol. 2B PTWRITE"},
	{pattern{space: map0F, lo: 0xae, pp: pp66, mod: inRegister, reg: r(6)}, "tpause", "", rm, "SDM vol. 2B TPAUSE"},
	{pattern{space: map0F, lo: 0xae, pp: ppF2, mod: inRegister, reg: r(6)}, "umwait", "", rm, "SDM vol. 2B UMWAIT"},
	{pattern{space: map0F, lo: 0xae, pp: ppF3, mod: inRegister, reg: r(6)}, "umonitor", "", rm64, "SDM vol. 2B UMONITOR"},
	{pattern{space: map0F, lo: 0xae, pp: ppNone, mod: inRegister, reg: r(5)}, "lfence", "", noOperands, "SDM vol. 2A LFENCE: rm is ignored"},
	{pattern{space: map0F, lo: 0xae, pp: ppNone, mod: inRegister, reg: r(6)}, "mfence", "", noOperands, "SDM vol. 2B MFENCE: rm is ignored"},
	{pattern{space: map0F, lo: 0xae, pp: ppNone, mod: inRegister, reg: r(7)}, "sfence", "", noOperands, "SDM vol. 2B SFENCE: rm is ignored"},
	{pattern{space: map0F, lo: 0xc7, pp: ppF3, mod: inRegister, reg: r(6)}, "senduipi", "", rm64, "SDM vol. 2B SENDUIPI"},
	{pattern{space: map0F, lo: 0xc7, pp: ppF3, mod: inRegister, reg: r(7)}, "rdpid", "", rm64, "SDM vol. 2B RDPID"},
	{pattern{space: map0F, lo: 0xc7, mod: inRegister, reg: r(7)}, "rdseed", "", rm, "SDM vol. 2B RDSEED"},

	{pattern{space: map0F38, lo: 0xcf, pp: pp66}, "gf2p8mulb", "", xmmRM, "SDM vol. 2A GF2P8MULB"},
	{pattern{space: map0F38, lo: 0xd8, pp: ppF3, mod: inMemory, reg: r(0)}, "aesencwide128kl", "", memory, "SDM vol. 2A AESENCWIDE128KL"},
	{pattern{space: map0F38, lo: 0xd8, pp: ppF3, mod: inMemory, reg: r(1)}, "aesdecwide128kl", "", memory, "SDM vol. 2A AESDECWIDE128KL"},
	{pattern{space: map0F38, lo: 0xd8, pp: ppF3, mod: inMemory, reg: r(2)}, "aesencwide256kl", "", memory, "SDM vol. 2A AESENCWIDE256KL"},
	{pattern{space: map0F38, lo: 0xd8, pp: ppF3, mod: inMemory, reg: r(3)}, "aesdecwide256kl", "", memory, "SDM vol. 2A AESDECWIDE256KL"},
	{pattern{space: map0F38, lo: 0xdc, hi: 0xdf, pp: ppF3, mod: inMemory}, "aesenc128kl aesdec128kl aesenc256kl aesdec256kl", "", xmmRM, "SDM vol. 2A AESENC128KL and the three that follow"},
	{pattern{space: map0F38, lo: 0xf6, pp: ppNone, mod: inMemory, w: w0}, "wrssd", "", regToRM, "SDM vol. 2D WRSSD"},
	{pattern{space: map0F38, lo: 0xf6, pp: ppNone, mod: inMemory, w: w1}, "wrssq", "", regToRM, "SDM vol. 2D WRSSQ"},
	{pattern{space: map0F38, lo: 0xf6, pp: pp66}, "adcx", "", rmToReg, "SDM vol. 2A ADCX"},
	{pattern{space: map0F38, lo: 0xf6, pp: ppF3}, "adox", "", rmToReg, "SDM vol. 2A ADOX"},
	{pattern{space: map0F38, lo: 0x8a, hi: 0x8b, pp: ppNone | pp66, mod: inMemory}, "movrs movrs", "", rmToReg, ise},
	{pattern{space: map0F38, lo: 0xf8, pp: ppF2, mod: inRegister}, "urdmsr", "", noOperands, ise},
	{pattern{space: map0F38, lo: 0xf8, pp: ppF3, mod: inRegister}, "uwrmsr", "", noOperands, ise},
	{pattern{space: map0F38, lo: 0xf8, pp: pp66, mod: inMemory}, "movdir64b", "", addressReg, "SDM vol. 2B MOVDIR64B"},
	{pattern{space: map0F38, lo: 0xf8, pp: ppF2, mod: inMemory}, "enqcmd", "", addressReg, "SDM vol. 2A ENQCMD"},
	{pattern{space: map0F38, lo: 0xf9, pp: ppNone, mod: inMemory}, "movdiri", "", regToRM, "SDM vol. 2B MOVDIRI"},
	{pattern{space: map0F38, lo: 0xfa, hi: 0xfb, pp: ppF3, mod: inRegister}, "encodekey128 encodekey256", "", rmToReg, "SDM vol. 2A ENCODEKEY128, ENCODEKEY256"},
	{pattern{space: map0F38, lo: 0xfc, pp: ppNone, mod: inMemory}, "aadd", "", regToRM, "SDM vol. 2A AADD"},
	{pattern{space: map0F38, lo: 0xfc, pp: pp66, mod: inMemory}, "aand", "", regToRM, "SDM vol. 2A AAND"},
	{pattern{space: map0F38, lo: 0xfc, pp: ppF2, mod: inMemory}, "aor", "", regToRM, "SDM vol. 2A AOR"},
	{pattern{space: map0F38, lo: 0xfc, pp: ppF3, mod: inMemory}, "axor", "", regToRM, "SDM vol. 2A AXOR"},
	{pattern{space: map0F3A, lo: 0xce, hi: 0xcf, pp: pp66}, "gf2p8affineqb gf2p8affineinvqb", "", xmmRMImm8, "SDM vol. 2A GF2P8AFFINEQB, GF2P8AFFINEINVQB"},
}

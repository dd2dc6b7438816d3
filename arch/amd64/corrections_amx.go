package amd64

const (
	anyRM  = 0
	useSIB = 1 << 4 // ModRM.rm of a memory operand with a SIB byte
)

// tileRow is an AMX instruction with VEX.128 and W0.
func tileRow(s space, lo, hi byte, pp, mod, rm uint8, names string) correction {
	return correction{pattern{space: s, lo: lo, hi: hi, pp: pp, mod: mod, rm: rm, w: w0, l: l0}, names, "", noOperands, ise}
}

// rowRow moves a row of a tile to a vector: EVEX.512 and W0.
func rowRow(s space, op byte, pp uint8, name string) correction {
	return correction{pattern{space: s, lo: op, pp: pp, mod: inRegister, w: w0, l: l2}, name, "", noOperands, ise}
}

// amxCorrections are the instructions on tiles, printed without operands.
var amxCorrections = []correction{
	{pattern{space: vex0F38, lo: 0x49, pp: ppNone, mod: inMemory, reg: r(0), w: w0, l: l0}, "ldtilecfg", "", noOperands, "SDM vol. 2A LDTILECFG"},
	{pattern{space: vex0F38, lo: 0x49, pp: pp66, mod: inMemory, reg: r(0), w: w0, l: l0}, "sttilecfg", "", noOperands, "SDM vol. 2B STTILECFG"},
	{pattern{space: vex0F38, lo: 0x49, pp: ppNone, mod: inRegister, reg: r(0), rm: r(0), w: w0, l: l0}, "tilerelease", "", noOperands, "SDM vol. 2B TILERELEASE"},
	{pattern{space: vex0F38, lo: 0x49, pp: ppF2, mod: inRegister, rm: r(0), w: w0, l: l0}, "tilezero", "", noOperands, "SDM vol. 2B TILEZERO"},

	tileRow(vex0F38, 0x48, 0, ppNone, inRegister, anyRM, "ttmmultf32ps"),
	tileRow(vex0F38, 0x48, 0, pp66, inRegister, anyRM, "tmmultf32ps"),
	tileRow(vex0F38, 0x4a, 0x4b, pp66, inMemory, useSIB, "tileloaddrst1 tileloaddt1"),
	tileRow(vex0F38, 0x4a, 0x4b, ppF2, inMemory, useSIB, "tileloaddrs tileloadd"),
	tileRow(vex0F38, 0x4b, 0, ppF3, inMemory, useSIB, "tilestored"),
	tileRow(vex0F38, 0x5c, 0, ppF3, inRegister, anyRM, "tdpbf16ps"),
	tileRow(vex0F38, 0x5c, 0, ppF2, inRegister, anyRM, "tdpfp16ps"),
	tileRow(vex0F38, 0x5e, 0, ppNone, inRegister, anyRM, "tdpbuud"),
	tileRow(vex0F38, 0x5e, 0, pp66, inRegister, anyRM, "tdpbusd"),
	tileRow(vex0F38, 0x5e, 0, ppF3, inRegister, anyRM, "tdpbsud"),
	tileRow(vex0F38, 0x5e, 0, ppF2, inRegister, anyRM, "tdpbssd"),
	tileRow(vex0F38, 0x5f, 0, ppF3, inRegister, anyRM, "ttransposed"),
	tileRow(vex0F38, 0x6b, 0x6c, ppNone, inRegister, anyRM, "tconjtcmmimfp16ps tcmmrlfp16ps"),
	tileRow(vex0F38, 0x6b, 0x6c, pp66, inRegister, anyRM, "tconjtfp16 tcmmimfp16ps"),
	tileRow(vex0F38, 0x6b, 0x6c, ppF3, inRegister, anyRM, "ttcmmrlfp16ps ttdpbf16ps"),
	tileRow(vex0F38, 0x6b, 0x6c, ppF2, inRegister, anyRM, "ttcmmimfp16ps ttdpfp16ps"),
	tileRow(vex0F38, 0x6e, 0x6f, ppNone, inMemory, useSIB, "t2rpntlvwz0 t2rpntlvwz0t1"),
	tileRow(vex0F38, 0x6e, 0x6f, pp66, inMemory, useSIB, "t2rpntlvwz1 t2rpntlvwz1t1"),
	tileRow(vexMap5, 0xf8, 0xf9, ppNone, inMemory, useSIB, "t2rpntlvwz0rs t2rpntlvwz0rst1"),
	tileRow(vexMap5, 0xf8, 0xf9, pp66, inMemory, useSIB, "t2rpntlvwz1rs t2rpntlvwz1rst1"),
	tileRow(vexMap5, 0xfd, 0, ppNone, inRegister, anyRM, "tdpbf8ps"),
	tileRow(vexMap5, 0xfd, 0, pp66, inRegister, anyRM, "tdphf8ps"),
	tileRow(vexMap5, 0xfd, 0, ppF3, inRegister, anyRM, "tdphbf8ps"),
	tileRow(vexMap5, 0xfd, 0, ppF2, inRegister, anyRM, "tdpbhf8ps"),

	rowRow(evex0F38, 0x4a, pp66, "tilemovrow"),
	rowRow(evex0F38, 0x4a, ppF3, "tcvtrowd2ps"),
	rowRow(evex0F38, 0x6d, ppNone, "tcvtrowps2phh"),
	rowRow(evex0F38, 0x6d, pp66, "tcvtrowps2phl"),
	rowRow(evex0F38, 0x6d, ppF3, "tcvtrowps2bf16l"),
	rowRow(evex0F38, 0x6d, ppF2, "tcvtrowps2bf16h"),
	rowRow(evex0F3A, 0x07, ppNone, "tcvtrowps2phh"),
	rowRow(evex0F3A, 0x07, pp66, "tilemovrow"),
	rowRow(evex0F3A, 0x07, ppF3, "tcvtrowd2ps"),
	rowRow(evex0F3A, 0x07, ppF2, "tcvtrowps2bf16h"),
	rowRow(evex0F3A, 0x77, ppF3, "tcvtrowps2bf16l"),
	rowRow(evex0F3A, 0x77, ppF2, "tcvtrowps2phl"),
}

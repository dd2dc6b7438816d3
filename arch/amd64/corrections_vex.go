package amd64

const fma4 = "APM vol. 4 §2, FMA4"

// vexCorrections are VEX-encoded instructions, printed without operands.
var vexCorrections = []correction{
	{pattern{space: vex0F, lo: 0x77, pp: ppNone, l: l0}, "vzeroupper", "", noOperands, "SDM vol. 2C VZEROUPPER"},
	{pattern{space: vex0F, lo: 0x77, pp: ppNone, l: l1}, "vzeroall", "", noOperands, "SDM vol. 2C VZEROALL"},
	{pattern{space: vex0F38, lo: 0x49, pp: ppNone, mod: inMemory, reg: r(0), w: w0, l: l0}, "ldtilecfg", "", noOperands, "SDM vol. 2A LDTILECFG"},
	{pattern{space: vex0F38, lo: 0x49, pp: pp66, mod: inMemory, reg: r(0), w: w0, l: l0}, "sttilecfg", "", noOperands, "SDM vol. 2B STTILECFG"},
	{pattern{space: vex0F38, lo: 0x49, pp: ppNone, mod: inRegister, reg: r(0), rm: r(0), w: w0, l: l0}, "tilerelease", "", noOperands, "SDM vol. 2B TILERELEASE"},
	{pattern{space: vex0F38, lo: 0x49, pp: ppF2, mod: inRegister, rm: r(0), w: w0, l: l0}, "tilezero", "", noOperands, "SDM vol. 2B TILEZERO"},
	{pattern{space: vex0F38, lo: 0x4b, pp: ppF2, mod: inMemory, rm: r(4), w: w0, l: l0}, "tileloadd", "", noOperands, "SDM vol. 2B TILELOADD"},
	{pattern{space: vex0F38, lo: 0x4b, pp: pp66, mod: inMemory, rm: r(4), w: w0, l: l0}, "tileloaddt1", "", noOperands, "SDM vol. 2B TILELOADDT1"},
	{pattern{space: vex0F38, lo: 0x4b, pp: ppF3, mod: inMemory, rm: r(4), w: w0, l: l0}, "tilestored", "", noOperands, "SDM vol. 2B TILESTORED"},
	{pattern{space: vex0F38, lo: 0x5c, pp: ppF3, mod: inRegister, w: w0, l: l0}, "tdpbf16ps", "", noOperands, "SDM vol. 2B TDPBF16PS"},
	{pattern{space: vex0F38, lo: 0x5c, pp: ppF2, mod: inRegister, w: w0, l: l0}, "tdpfp16ps", "", noOperands, "SDM vol. 2B TDPFP16PS"},
	{pattern{space: vex0F38, lo: 0x5e, pp: ppNone, mod: inRegister, w: w0, l: l0}, "tdpbuud", "", noOperands, "SDM vol. 2B TDPBUUD"},
	{pattern{space: vex0F38, lo: 0x5e, pp: pp66, mod: inRegister, w: w0, l: l0}, "tdpbusd", "", noOperands, "SDM vol. 2B TDPBUSD"},
	{pattern{space: vex0F38, lo: 0x5e, pp: ppF3, mod: inRegister, w: w0, l: l0}, "tdpbsud", "", noOperands, "SDM vol. 2B TDPBSUD"},
	{pattern{space: vex0F38, lo: 0x5e, pp: ppF2, mod: inRegister, w: w0, l: l0}, "tdpbssd", "", noOperands, "SDM vol. 2B TDPBSSD"},
	{pattern{space: vex0F38, lo: 0xe0, hi: 0xef, pp: pp66, mod: inMemory, l: l0}, "cmpoxadd cmpnoxadd cmpbxadd cmpnbxadd cmpzxadd cmpnzxadd cmpbexadd cmpnbexadd " +
		"cmpsxadd cmpnsxadd cmppxadd cmpnpxadd cmplxadd cmpnlxadd cmplexadd cmpnlexadd", "", noOperands, "SDM vol. 2A CMPccXADD"},

	{pattern{space: vex0F3A, lo: 0x5c, hi: 0x5f, pp: pp66}, "vfmaddsubps vfmaddsubpd vfmsubaddps vfmsubaddpd", "", noOperands, fma4},
	{pattern{space: vex0F3A, lo: 0x68, hi: 0x6f, pp: pp66}, "vfmaddps vfmaddpd vfmaddss vfmaddsd vfmsubps vfmsubpd vfmsubss vfmsubsd", "", noOperands, fma4},
	{pattern{space: vex0F3A, lo: 0x78, hi: 0x7f, pp: pp66}, "vfnmaddps vfnmaddpd vfnmaddss vfnmaddsd vfnmsubps vfnmsubpd vfnmsubss vfnmsubsd", "", noOperands, fma4},
}

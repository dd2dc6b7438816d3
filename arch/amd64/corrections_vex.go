package amd64

const fma4 = "APM vol. 4 §2, FMA4"

// vexCorrections are VEX-encoded instructions, printed without operands.
var vexCorrections = []correction{
	{pattern{space: vex0F, lo: 0x77, pp: ppNone, l: l0}, "vzeroupper", "", noOperands, "SDM vol. 2C VZEROUPPER"},
	{pattern{space: vex0F, lo: 0x77, pp: ppNone, l: l1}, "vzeroall", "", noOperands, "SDM vol. 2C VZEROALL"},
	{pattern{space: vex0F38, lo: 0xe0, hi: 0xef, pp: pp66, mod: inMemory, l: l0}, "cmpoxadd cmpnoxadd cmpbxadd cmpnbxadd cmpzxadd cmpnzxadd cmpbexadd cmpnbexadd " +
		"cmpsxadd cmpnsxadd cmppxadd cmpnpxadd cmplxadd cmpnlxadd cmplexadd cmpnlexadd", "", noOperands, "SDM vol. 2A CMPccXADD"},

	{pattern{space: vexMap7, lo: 0xf8, pp: ppF2, mod: inRegister, reg: r(0), l: l0, w: w0}, "urdmsr", "", noOperands, ise},
	{pattern{space: vexMap7, lo: 0xf8, pp: ppF3, mod: inRegister, reg: r(0), l: l0, w: w0}, "uwrmsr", "", noOperands, ise},

	{pattern{space: vex0F3A, lo: 0x48, hi: 0x49, pp: pp66}, "vpermil2ps vpermil2pd", "", noOperands, "APM vol. 4 §2, VPERMIL2PS, VPERMIL2PD"},
	{pattern{space: vex0F3A, lo: 0x5c, hi: 0x5f, pp: pp66}, "vfmaddsubps vfmaddsubpd vfmsubaddps vfmsubaddpd", "", noOperands, fma4},
	{pattern{space: vex0F3A, lo: 0x68, hi: 0x6f, pp: pp66}, "vfmaddps vfmaddpd vfmaddss vfmaddsd vfmsubps vfmsubpd vfmsubss vfmsubsd", "", noOperands, fma4},
	{pattern{space: vex0F3A, lo: 0x78, hi: 0x7f, pp: pp66}, "vfnmaddps vfnmaddpd vfnmaddss vfnmaddsd vfnmsubps vfnmsubpd vfnmsubss vfnmsubsd", "", noOperands, fma4},
}

package amd64

// threeDNow is a 3DNow! operation, whose opcode is the last byte.
func threeDNow(op byte, name string) correction {
	return correction{pattern{space: map3DNow, lo: op}, name, "", mmRM, "3DNow! Technology Manual (21928)"}
}

// amdCorrections are extensions that only AMD's processors have or had.
var amdCorrections = []correction{
	threeDNow(0x0c, "pi2fw"), threeDNow(0x0d, "pi2fd"), threeDNow(0x1c, "pf2iw"), threeDNow(0x1d, "pf2id"),
	threeDNow(0x86, "pfrcpv"), threeDNow(0x87, "pfrsqrtv"), threeDNow(0x8a, "pfnacc"), threeDNow(0x8e, "pfpnacc"),
	threeDNow(0x90, "pfcmpge"), threeDNow(0x94, "pfmin"), threeDNow(0x96, "pfrcp"), threeDNow(0x97, "pfrsqrt"),
	threeDNow(0x9a, "pfsub"), threeDNow(0x9e, "pfadd"), threeDNow(0xa0, "pfcmpgt"), threeDNow(0xa4, "pfmax"),
	threeDNow(0xa6, "pfrcpit1"), threeDNow(0xa7, "pfrsqit1"), threeDNow(0xaa, "pfsubr"), threeDNow(0xae, "pfacc"),
	threeDNow(0xb0, "pfcmpeq"), threeDNow(0xb4, "pfmul"), threeDNow(0xb6, "pfrcpit2"), threeDNow(0xb7, "pmulhrw"),
	threeDNow(0xbb, "pswapd"), threeDNow(0xbf, "pavgusb"),
	{pattern{space: map0F, lo: 0x0e}, "femms", "", noOperands, "APM vol. 3 FEMMS"},

	{pattern{space: map0F, lo: 0x78, pp: pp66, mod: inRegister, reg: r(0)}, "extrq", "", noOperands, "APM vol. 4 EXTRQ"},
	{pattern{space: map0F, lo: 0x78, pp: ppF2, mod: inRegister}, "insertq", "", noOperands, "APM vol. 4 INSERTQ"},
	{pattern{space: map0F, lo: 0x79, pp: pp66, mod: inRegister}, "extrq", "", xmmRM, "APM vol. 4 EXTRQ"},
	{pattern{space: map0F, lo: 0x79, pp: ppF2, mod: inRegister}, "insertq", "", xmmRM, "APM vol. 4 INSERTQ"},
	{pattern{space: map0F, lo: 0x78, hi: 0x79, pp: pp66 | ppF3 | ppF2}, "", noSuchGroup, noOperands, "APM vol. 4 EXTRQ, INSERTQ"},
}

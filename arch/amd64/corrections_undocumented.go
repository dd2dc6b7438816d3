package amd64

const (
	opcodeMap = "APM vol. 3 table A-6" // the group members that SDM's table A-6 leaves out
	fpuMap    = "APM vol. 3 table A-15"
	fpuAlias  = "APM vol. 3 table A-15, reserved there; processors run it"
	padLock   = "VIA PadLock Programming Guide §4"
)

// undocumented are instructions that processors run and the SDM does not list, or
// lists for older processors only.
var undocumented = []correction{
	{pattern{space: oneByte, lo: 0xc0, hi: 0xc1, reg: r(6)}, "", "", twin(4), opcodeMap},
	{pattern{space: oneByte, lo: 0xd0, hi: 0xd3, reg: r(6)}, "", "", twin(4), opcodeMap},
	{pattern{space: oneByte, lo: 0xf6, hi: 0xf7, reg: r(1)}, "", "", twin(0), opcodeMap},
	{pattern{space: oneByte, lo: 0xdb, mod: inRegister, reg: r(4), rm: r(0)}, "fneni", "", noOperands, fpuMap},
	{pattern{space: oneByte, lo: 0xdb, mod: inRegister, reg: r(4), rm: r(1)}, "fndisi", "", noOperands, fpuMap},
	{pattern{space: oneByte, lo: 0xdb, mod: inRegister, reg: r(4), rm: r(4)}, "fnsetpm", "", noOperands, fpuMap},

	{pattern{space: oneByte, lo: 0xd9, mod: inRegister, reg: r(3)}, "fstp", "", like{op: "\xdd", digit: 3}, fpuAlias},
	{pattern{space: oneByte, lo: 0xdc, mod: inRegister, reg: r(2)}, "fcom", "", like{op: "\xd8", digit: 2}, fpuAlias},
	{pattern{space: oneByte, lo: 0xdc, mod: inRegister, reg: r(3)}, "fcomp", "", like{op: "\xd8", digit: 3}, fpuAlias},
	{pattern{space: oneByte, lo: 0xdd, mod: inRegister, reg: r(1)}, "fxch", "", like{op: "\xd9", digit: 1}, fpuAlias},
	{pattern{space: oneByte, lo: 0xde, mod: inRegister, reg: r(2)}, "fcomp", "", like{op: "\xd8", digit: 3}, fpuAlias},
	{pattern{space: oneByte, lo: 0xdf, mod: inRegister, reg: r(1)}, "fxch", "", like{op: "\xd9", digit: 1}, fpuAlias},
	{pattern{space: oneByte, lo: 0xdf, mod: inRegister, reg: r(2, 3)}, "fstp", "", like{op: "\xdd", digit: 3}, fpuAlias},

	{pattern{space: map0F, lo: 0xa6, mod: inRegister, reg: r(0), rm: r(0)}, "montmul", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa6, mod: inRegister, reg: r(1), rm: r(0)}, "xsha1", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa6, mod: inRegister, reg: r(2), rm: r(0)}, "xsha256", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa7, mod: inRegister, reg: r(0), rm: r(0)}, "xstore-rng", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa7, mod: inRegister, reg: r(1), rm: r(0)}, "xcrypt-ecb", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa7, mod: inRegister, reg: r(2), rm: r(0)}, "xcrypt-cbc", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa7, mod: inRegister, reg: r(3), rm: r(0)}, "xcrypt-ctr", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa7, mod: inRegister, reg: r(4), rm: r(0)}, "xcrypt-cfb", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa7, mod: inRegister, reg: r(5), rm: r(0)}, "xcrypt-ofb", "", noOperands, padLock},
	{pattern{space: map0F, lo: 0xa6, hi: 0xa7}, "", noSuchGroup, noOperands, padLock},
}

const mpx = "SDM vol. 1 appendix E, Intel Memory Protection Extensions"

// mpxCorrections are the bounds checks, printed without operands. A processor without
// them takes them for nops.
var mpxCorrections = []correction{
	{pattern{space: map0F, lo: 0x1a, pp: ppNone, mod: inMemory, reg: bounds}, "bndldx", "", noOperands, mpx},
	{pattern{space: map0F, lo: 0x1b, pp: ppNone, mod: inMemory, reg: bounds}, "bndstx", "", noOperands, mpx},
	{pattern{space: map0F, lo: 0x1a, hi: 0x1b, pp: pp66, reg: bounds}, "bndmov bndmov", "", noOperands, mpx},
	{pattern{space: map0F, lo: 0x1a, pp: ppF3, reg: bounds}, "bndcl", "", noOperands, mpx},
	{pattern{space: map0F, lo: 0x1b, pp: ppF3, mod: inMemory, reg: bounds}, "bndmk", "", noOperands, mpx},
	{pattern{space: map0F, lo: 0x1a, hi: 0x1b, pp: ppF2, reg: bounds}, "bndcu bndcn", "", noOperands, mpx},
}

const bounds = 1<<4 - 1 // bnd0 to bnd3

package amd64

import "github.com/gokprobe/gokprobe/arch"

const (
	flagAF     = 1 << 4
	Arithmetic = flagCF | flagPF | flagAF | FlagZF | flagSF | flagOF // what Dead.Flags is about
)

// effects is what an instruction does to general registers and arithmetic flags.
type effects struct {
	reads, writes uint16 // registers; writes are of all 64 bits
	readsFlags    bool
	writesFlags   uint64 // to values that do not depend on those before
	touches       bool   // memory that may be anywhere, so that it may fault
	movesStack    bool   // anywhere
}

// Dead finds registers and flags that insns write before they read them. It knows the
// instructions that compilers put at the beginnings of functions and blocks, and stops
// at every other one and at every branch. When an instruction faults by its operand, a
// handler may look at the registers. So a register that is written there or later is
// not dead. That does not hold for flags.
func (Arch) Dead(insns []arch.Insn) (dead arch.Dead) {
	needed := uint16(1 << SP)
	flags := uint64(Arithmetic) // not written yet
	for _, i := range insns {
		f, err := parse(i.Bytes)
		if err != nil || f.len != len(i.Bytes) {
			break
		}
		e, ok := effectsOf(&f, i.Bytes)
		if !ok {
			break
		}
		if e.touches || e.movesStack {
			needed = ^uint16(0)
		}
		needed |= e.reads &^ dead.Regs
		dead.Regs |= e.writes &^ needed
		if e.readsFlags && !dead.Flags {
			flags = 0
		}
		if flags != 0 {
			flags &^= e.writesFlags
			dead.Flags = flags == 0
		}
	}
	return dead
}

// use tells whether an instruction reads or writes an operand.
type use uint8

const (
	reads use = 1 << iota
	writes
	names  // its address alone
	vector // of 16 bytes, which may have to be aligned
)

// bytes8 tells which operands have 8 bits.
type bytes8 uint8

const (
	ifEven bytes8 = iota + 1 // all, if the opcode is even
	rmOnly                   // the r/m operand
	all8
)

// effectRow says what the instructions of a pattern do. There is no general register in an
// operand whose use is 0.
type effectRow struct {
	pattern
	reg, rm, opcode use // the operands in ModRM.reg, ModRM.rm, and the opcode's low bits
	rax             use // an operand that the opcode implies
	bytes           bytes8
	flags           uint64
	readsFlags      bool
}

var effectIndex = newIndex(len(effectRows), func(i int) *pattern { return &effectRows[i].pattern })

// effectRows lists what Dead trusts itself to know, besides the eight operations of alu.
// and, or, xor and test leave AF undefined (SDM vol. 2A), which is not: as it was.
var effectRows = []effectRow{
	{pattern: pattern{space: oneByte, lo: 0x50, hi: 0x57}, opcode: reads},                        // push
	{pattern: pattern{space: oneByte, lo: 0x58, hi: 0x5f}, opcode: writes},                       // pop
	{pattern: pattern{space: oneByte, lo: 0x63}, reg: writes, rm: reads},                         // movslq
	{pattern: pattern{space: oneByte, lo: 0x68}},                                                 // push
	{pattern: pattern{space: oneByte, lo: 0x69}, reg: writes, rm: reads, flags: flagCF | flagOF}, // imul
	{pattern: pattern{space: oneByte, lo: 0x6a}},                                                 // push
	{pattern: pattern{space: oneByte, lo: 0x6b}, reg: writes, rm: reads, flags: flagCF | flagOF},
	{pattern: pattern{space: oneByte, lo: 0x84, hi: 0x85}, reg: reads, rm: reads, bytes: ifEven, flags: Arithmetic}, // test
	{pattern: pattern{space: oneByte, lo: 0x88, hi: 0x89}, reg: reads, rm: writes, bytes: ifEven},                   // mov
	{pattern: pattern{space: oneByte, lo: 0x8a, hi: 0x8b}, reg: writes, rm: reads, bytes: ifEven},
	{pattern: pattern{space: oneByte, lo: 0x8d}, reg: writes, rm: names},                                 // lea
	{pattern: pattern{space: oneByte, lo: 0xa8, hi: 0xa9}, rax: reads, bytes: ifEven, flags: Arithmetic}, // test
	{pattern: pattern{space: oneByte, lo: 0xb0, hi: 0xb7}, opcode: writes, bytes: all8},                  // mov
	{pattern: pattern{space: oneByte, lo: 0xb8, hi: 0xbf}, opcode: writes},
	{pattern: pattern{space: oneByte, lo: 0xc6, hi: 0xc7, reg: r(0)}, rm: writes, bytes: ifEven},
	{pattern: pattern{space: oneByte, lo: 0xf6, hi: 0xf7, reg: r(0)}, rm: reads, bytes: ifEven, flags: Arithmetic},          // test
	{pattern: pattern{space: oneByte, lo: 0xf6, hi: 0xf7, reg: r(2)}, rm: reads | writes, bytes: ifEven},                    // not
	{pattern: pattern{space: oneByte, lo: 0xf6, hi: 0xf7, reg: r(3)}, rm: reads | writes, bytes: ifEven, flags: Arithmetic}, // neg
	{pattern: pattern{space: oneByte, lo: 0xfe, hi: 0xff, reg: r(0, 1)}, rm: reads | writes, bytes: ifEven, flags: Arithmetic &^ flagCF},

	{pattern: pattern{space: map0F, lo: 0x10, hi: 0x11}, rm: names | reads},          // movups and its kin
	{pattern: pattern{space: map0F, lo: 0x28, hi: 0x29}, rm: names | reads | vector}, // movaps
	{pattern: pattern{space: map0F, lo: 0x57}, rm: names | reads | vector},           // xorps
	{pattern: pattern{space: map0F, lo: 0x6f}, rm: names | reads | vector},           // movdqa
	{pattern: pattern{space: map0F, lo: 0x7f}, rm: names | reads | vector},
	{pattern: pattern{space: map0F, lo: 0xef}, rm: names | reads | vector},                                 // pxor
	{pattern: pattern{space: map0F, lo: 0x1e, pp: ppF3, mod: inRegister, reg: r(7), rm: r(2)}},             // endbr64
	{pattern: pattern{space: map0F, lo: 0x1f}, rm: names},                                                  // nop
	{pattern: pattern{space: map0F, lo: 0x40, hi: 0x4f}, reg: reads | writes, rm: reads, readsFlags: true}, // cmov
	{pattern: pattern{space: map0F, lo: 0x90, hi: 0x9f}, rm: writes, bytes: all8, readsFlags: true},        // set
	{pattern: pattern{space: map0F, lo: 0xaf}, reg: reads | writes, rm: reads, flags: flagCF | flagOF},     // imul
	{pattern: pattern{space: map0F, lo: 0xb6, pp: ppNone | pp66}, reg: writes, rm: reads, bytes: rmOnly},   // movzx
	{pattern: pattern{space: map0F, lo: 0xb7, pp: ppNone | pp66}, reg: writes, rm: reads},
	{pattern: pattern{space: map0F, lo: 0xbe, pp: ppNone | pp66}, reg: writes, rm: reads, bytes: rmOnly}, // movsx
	{pattern: pattern{space: map0F, lo: 0xbf, pp: ppNone | pp66}, reg: writes, rm: reads},
}

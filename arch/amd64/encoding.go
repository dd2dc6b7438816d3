package amd64

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Mandatory prefixes, as bits so that a pattern can name several.
const (
	ppNone = 1 << iota
	pp66
	ppF3
	ppF2
)

// Bits of a REX prefix; those of VEX and EVEX are brought into the same form.
const (
	rexB = 1 << iota
	rexX
	rexR
	rexW
)

// form is an instruction taken apart into the fields of its encoding (SDM
// vol. 2A §2.1), not yet understood. Offsets are in bytes from its start.
type form struct {
	space  space
	op     byte
	pp     uint8 // one of the ppXxx bits
	prefix int   // number of legacy prefixes, before REX, VEX, EVEX

	voidREX bool // among them are REX prefixes without effect

	opsize   bool // 66
	addrsize bool // 67
	lock     bool // f0
	seg      byte // 64 or 65, the last one; 0 if none
	rep      byte // f2 or f3, the last one; 0 if none
	rex      byte // WRXB
	vl       byte // VEX.L, EVEX.L'L

	hasModRM bool
	modrm    byte
	modrmAt  int
	sib      byte
	ripRel   bool // the memory operand is disp32 relative to the successor
	disp     int
	dispLen  int
	imm      int
	immLen   int
	len      int
}

func (f *form) mod() byte { return f.modrm >> 6 }
func (f *form) reg() byte { return f.modrm >> 3 & 7 }
func (f *form) rm() byte  { return f.modrm & 7 }

// register tells that the r/m operand is a register.
func (f *form) register() bool { return f.hasModRM && f.mod() == 3 }

// undecodable is an error that says why bytes are no instruction. Where instructions are searched for, nobody reads most of these: the text is made when
// somebody does. The bytes among args may be others by then, so they are copied.
func undecodable(format string, args ...any) error {
	for i, a := range args {
		if b, ok := a.([]byte); ok {
			args[i] = bytes.Clone(b)
		}
	}
	return &noInsn{format, args}
}

type noInsn struct {
	format string
	args   []any
}

func (e *noInsn) Error() string {
	return arch.ErrUndecodable.Error() + ": " + fmt.Sprintf(e.format, e.args...)
}

func (e *noInsn) Unwrap() error { return arch.ErrUndecodable }

// parse takes the first instruction in code apart. The length it finds is right
// for every opcode that exists; whether this one does is not its question.
func parse(code []byte) (form, error) {
	var f form
	if len(code) > maxInsnLen {
		code = code[:maxInsnLen]
	}
	pos, err := f.parsePrefixes(code)
	if err != nil {
		return f, err
	}
	if pos, err = f.parseOpcode(code, pos); err != nil {
		return f, err
	}
	if pos, err = f.parseOperands(code, pos); err != nil {
		return f, err
	}
	f.len = pos
	return f, nil
}

// short is the error for code that ends too early at its limit.
func short(code []byte) error {
	if len(code) >= maxInsnLen {
		return undecodable("longer than %d bytes", maxInsnLen)
	}
	return arch.ErrTruncated
}

// parsePrefixes reads legacy prefixes and REX, in the order of SDM vol. 2A
// §2.2.1: a REX prefix that another prefix follows is ignored.
func (f *form) parsePrefixes(code []byte) (int, error) {
	rex := false // the byte before pos is one
	for pos, b := range code {
		switch b {
		case 0x26, 0x2e, 0x36, 0x3e: // no effect in 64-bit mode, not even on 64 and 65
		case 0x64, 0x65:
			f.seg = b
		case 0x66:
			f.opsize = true
		case 0x67:
			f.addrsize = true
		case 0xf0:
			f.lock = true
		case 0xf2, 0xf3:
			f.rep = b
		default:
			if b&0xf0 != 0x40 {
				if f.prefix = pos; rex {
					f.prefix--
				}
				f.pp = legacyPP(f)
				return pos, nil
			}
		}
		f.voidREX = f.voidREX || rex
		if rex = b&0xf0 == 0x40; rex {
			f.rex = b & 0x0f
		} else {
			f.rex = 0
		}
	}
	return 0, short(code)
}

func legacyPP(f *form) uint8 {
	switch {
	case f.rep == 0xf3:
		return ppF3
	case f.rep == 0xf2:
		return ppF2
	case f.opsize:
		return pp66
	}
	return ppNone
}

// parseOpcode reads the escape bytes or VEX or EVEX, and the opcode.
func (f *form) parseOpcode(code []byte, pos int) (int, error) {
	at := func(i int) byte {
		if i < len(code) {
			return code[i]
		}
		return 0
	}
	switch code[pos] {
	case 0x62:
		return f.parseEVEX(code, pos)
	case 0xc4, 0xc5:
		return f.parseVEX(code, pos)
	case 0x8f:
		if pos+1 < len(code) && code[pos+1]&0x38 != 0 { // APM vol. 3 §1.2.7
			return 0, undecodable("XOP encoding (XOP, TBM and LWP were removed from the architecture)")
		}
	case 0x0f:
		switch pos++; at(pos) {
		case 0x38:
			f.space = map0F38
			pos++
		case 0x3a:
			f.space = map0F3A
			pos++
		default:
			f.space = map0F
		}
	}
	if pos >= len(code) {
		return 0, short(code)
	}
	f.op = code[pos]
	return pos + 1, nil
}

// noPrefix refuses the prefixes that raise #UD before VEX and EVEX (SDM vol. 2A
// §2.3.2, §2.7.1).
func (f *form) noPrefix(code []byte, pos int) error {
	if f.opsize || f.rep != 0 || f.lock || f.prefix != pos {
		return undecodable("%#x after an operand-size, repeat, lock or REX prefix", code[pos])
	}
	return nil
}

// parseVEX reads a VEX prefix and the opcode (SDM vol. 2A §2.3.5).
func (f *form) parseVEX(code []byte, pos int) (int, error) {
	if err := f.noPrefix(code, pos); err != nil {
		return 0, err
	}
	n := 3
	if code[pos] == 0xc5 {
		n = 2
	}
	if pos+n >= len(code) {
		return 0, short(code)
	}
	last := code[pos+n-1]
	f.space = vex0F
	f.rex = ^code[pos+1] >> 5 & rexR
	if n == 3 {
		switch m := code[pos+1] & 0x1f; m {
		case 1, 2, 3:
			f.space += space(m - 1)
		case 5:
			f.space = vexMap5
		case 7:
			f.space = vexMap7
		default:
			return 0, undecodable("VEX opcode map %d", m)
		}
		f.rex = ^code[pos+1]>>5&7 | last>>4&rexW
	}
	f.pp, f.vl = vexPP(last), last>>2&1
	f.op = code[pos+n]
	return pos + n + 1, nil
}

// parseEVEX reads an EVEX prefix and the opcode (SDM vol. 2A §2.7.1).
func (f *form) parseEVEX(code []byte, pos int) (int, error) {
	if err := f.noPrefix(code, pos); err != nil {
		return 0, err
	}
	if pos+4 >= len(code) {
		return 0, short(code)
	}
	p0, p1 := code[pos+1], code[pos+2]
	if p0&8 != 0 || p1&4 == 0 {
		return 0, undecodable("reserved bits of EVEX")
	}
	switch m := p0 & 7; m {
	case 1, 2, 3:
		f.space = evex0F + space(m-1)
	case 5, 6:
		f.space = evexMap5 + space(m-5)
	default:
		return 0, undecodable("EVEX opcode map %d", m)
	}
	f.rex = ^p0>>5&7 | p1>>4&rexW
	f.pp, f.vl = vexPP(p1), code[pos+3]>>5&3
	f.op = code[pos+4]
	return pos + 5, nil
}

func vexPP(b byte) uint8 { return [...]uint8{ppNone, pp66, ppF3, ppF2}[b&3] }

// parseOperands reads ModRM, SIB, displacement and immediate.
func (f *form) parseOperands(code []byte, pos int) (int, error) {
	shape := shapeOf(f.space, f.op)
	switch shape {
	case shBad:
		return 0, undecodable("opcode %#x in 64-bit mode", f.op)
	case shModRM, shModB, shModD, shModZ, shGroup3, shGroupZ, shRegs, shExtract:
		var err error
		if pos, err = f.parseModRM(code, pos, shape == shRegs); err != nil {
			return 0, err
		}
	}
	f.imm, f.immLen = pos, f.immSize(shape)
	pos += f.immLen
	if pos > len(code) {
		return 0, short(code)
	}
	if f.space == map0F && f.op == 0x0f { // APM vol. 3 §1.4.1: its opcode comes last
		f.space, f.op = map3DNow, code[f.imm]
	}
	return pos, nil
}

// parseModRM reads ModRM, SIB and displacement (SDM vol. 2A §2.1.5, §2.2.1.6).
func (f *form) parseModRM(code []byte, pos int, regs bool) (int, error) {
	if pos >= len(code) {
		return 0, short(code)
	}
	f.hasModRM, f.modrm, f.modrmAt = true, code[pos], pos
	if regs {
		f.modrm |= 0xc0
	}
	pos++
	if f.mod() == 3 {
		return pos, nil
	}
	base := f.rm()
	if base == 4 {
		if pos >= len(code) {
			return 0, short(code)
		}
		f.sib = code[pos]
		base = f.sib & 7
		pos++
	}
	switch {
	case f.mod() == 1:
		f.dispLen = 1
	case f.mod() == 2, base == 5:
		f.dispLen = 4
	}
	f.ripRel = f.mod() == 0 && f.rm() == 5
	f.disp = pos
	return pos + f.dispLen, nil
}

func (f *form) immSize(shape byte) int {
	z := 4
	if f.opsize && f.rex&rexW == 0 {
		z = 2
	}
	switch shape {
	case shImm8, shModB, shRel8:
		return 1
	case shImm16:
		return 2
	case shEnter:
		return 3
	case shImmZ, shModZ:
		return z
	case shRel32, shModD:
		return 4
	case shExtract:
		if f.pp == pp66 || f.pp == ppF2 {
			return 2
		}
	case shImmV:
		if f.rex&rexW != 0 {
			return 8
		}
		return z
	case shMoffs:
		if f.addrsize {
			return 4
		}
		return 8
	case shGroup3:
		if f.reg() < 2 {
			return 1
		}
	case shGroupZ:
		if f.reg() < 2 {
			return z
		}
	}
	return 0
}

// signed reads the n-byte little-endian number at code[at:], n 1, 2 or 4.
func signed(code []byte, at, n int) int64 {
	switch n {
	case 1:
		return int64(int8(code[at]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(code[at:])))
	}
	return int64(int32(binary.LittleEndian.Uint32(code[at:])))
}

//go:build linux && amd64

package oracle_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/gokprobe/gokprobe/arch"
)

// encodings is how many opcodes there are in all maps.
const encodings = 12 * 256

// anyOpcode encodes opcode number n with random prefixes and operands. It may be
// no instruction.
func anyOpcode(r *rand.Rand, c *testCase, n int) []byte {
	op := byte(n / 12)
	switch m := n % 12; m {
	case 0:
		return operands(r, c, append(legacyPrefixes(r), op))
	case 1:
		return operands(r, c, append(legacyPrefixes(r), 0x0f, op))
	case 2:
		return operands(r, c, append(legacyPrefixes(r), 0x0f, 0x38, op))
	case 3:
		return operands(r, c, append(legacyPrefixes(r), 0x0f, 0x3a, op))
	case 4, 5, 6:
		return operands(r, c, append(vex(r, byte(m-3)), op))
	default:
		return operands(r, c, append(evex(r, []byte{1, 2, 3, 5, 6}[m-7]), op))
	}
}

func legacyPrefixes(r *rand.Rand) []byte {
	var b []byte
	for one(r, 3) && len(b) < 3 {
		b = append(b, pick[byte](r, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3))
	}
	switch r.IntN(6) { // a mandatory prefix, maybe
	case 0:
		b = append(b, 0x66)
	case 1:
		b = append(b, pick[byte](r, 0xf2, 0xf3))
	}
	if one(r, 2) {
		b = append(b, rex(r))
	}
	return b
}

func rex(r *rand.Rand) byte { return 0x40 | byte(r.IntN(16)) }

// vvvv is the inverted third operand; mostly none.
func vvvv(r *rand.Rand) byte {
	if one(r, 2) {
		return 0x78
	}
	return byte(r.IntN(16)) << 3
}

func vex(r *rand.Rand, m byte) []byte {
	var b []byte
	if one(r, 8) {
		b = append(b, pick[byte](r, 0x64, 0x65, 0x67, 0x2e))
	}
	last := vvvv(r) | byte(r.IntN(8))
	if m == 1 && one(r, 2) {
		return append(b, 0xc5, last|byte(r.IntN(2))<<7)
	}
	return append(b, 0xc4, byte(r.IntN(8))<<5|m, last|byte(r.IntN(2))<<7)
}

func evex(r *rand.Rand, m byte) []byte {
	var b []byte
	if one(r, 8) {
		b = append(b, pick[byte](r, 0x64, 0x65, 0x67, 0x2e))
	}
	p2 := byte(r.IntN(3))<<5 | byte(r.IntN(2))<<3
	if one(r, 2) {
		p2 |= 8 // V' of no third operand
	}
	if one(r, 2) {
		p2 |= byte(r.IntN(8)) // opmask
	}
	if one(r, 4) {
		p2 |= byte(r.IntN(16)) << 4 // z, L'L, b
	}
	return append(b, 0x62, byte(r.IntN(16))<<4|m, byte(r.IntN(2))<<7|vvvv(r)|4|byte(r.IntN(4)), p2)
}

// operands appends a ModRM byte with what belongs to it, and bytes for immediates.
func operands(r *rand.Rand, c *testCase, b []byte) []byte {
	mod := pick[byte](r, 0, 0, 1, 1, 2, 3, 3, 3)
	return memoryOperand(r, c, b, mod<<6|byte(r.IntN(64)))
}

// group appends a ModRM byte with the given reg field and a memory operand.
func group(r *rand.Rand, c *testCase, b []byte, reg byte) []byte {
	return memoryOperand(r, c, b, byte(r.IntN(3))<<6|reg<<3|byte(r.IntN(8)))
}

func memoryOperand(r *rand.Rand, c *testCase, b []byte, modrm byte) []byte {
	b = append(b, modrm)
	mod, base, index := modrm>>6, modrm&7, byte(4)
	if base == 4 && mod != 3 {
		sib := byte(r.IntN(256))
		b = append(b, sib)
		base, index = sib&7, sib>>3&7
	}
	c.disp = len(b)
	far := mod == 2 && one(r, 4) || mod == 0 && base == 5
	switch {
	case mod == 1:
		b = append(b, byte(r.Uint32()))
	case far:
		b = binary.LittleEndian.AppendUint32(b, uint32(dataPointer(r)))
	case mod == 2:
		b = binary.LittleEndian.AppendUint32(b, uint32(r.IntN(512)))
	}
	if mod != 3 && len(c.insns) == 0 && !one(r, 4) {
		c.point(r, base, index, far)
	}
	for range 8 {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// point has base and index, with and without REX, add up to memory that is there. far
// tells that the displacement does so alone.
func (c *testCase) point(r *rand.Rand, base, index byte, far bool) {
	for _, n := range []byte{base, base + 8} {
		if v := dataPointer(r); byNumber[n] != rsp && !far {
			c.in.Reg[byNumber[n]] = v
		} else if byNumber[n] != rsp {
			c.in.Reg[byNumber[n]] = uint64(r.IntN(16))
		}
	}
	for _, n := range []byte{index, index + 8} {
		if n != 4 && n != base && n != base+8 {
			c.in.Reg[byNumber[n]] = uint64(r.IntN(16)) * 8
		}
	}
}

// absolute encodes [disp32] without a base.
func absolute(reg byte, at uint64) []byte {
	return binary.LittleEndian.AppendUint32([]byte{reg<<3 | 4, 0x25}, uint32(at))
}

// settle appends b to the case, decoded, and has what it names relative to rip be where
// something is. It reports false if b is no instruction of use.
func (c *testCase) settle(r *rand.Rand, b []byte) bool {
	if one(r, 24) { // as long as can be
		b = append(bytes.Repeat([]byte{pick[byte](r, 0x2e, 0x3e, 0x36, 0x66)}, 1+r.IntN(12)), b...)
		c.disp = -1
	}
	b = b[:min(len(b), maxInsn)]
	at := c.end()
	insn, err := decode(b, at)
	if err != nil {
		return false
	}
	b = insn.Bytes
	switch {
	case insn.PCRel && c.disp < 0:
		return false
	case insn.PCRel && c.disp+4 <= len(b):
		want := dataPointer(r)
		if one(r, 10) {
			want = wild(r)
		}
		putRel32(b[c.disp:], want, insn.End())
	case insn.Target != 0 && insn.Flow != arch.FlowNext:
		c.aim(r, b, insn)
	}
	insn, err = decode(b, at)
	if err != nil || insn.PCRel && codeRange.Contains(insn.MemTarget) || forbidden(insn) {
		return false
	}
	c.insns = append(c.insns, insn)
	return true
}

// codeRange is where reading shows breakpoints.
var codeRange = arch.Range{Start: codeAt - page, End: codeEnd + page}

// aim has a direct branch lead to the next instruction or out of the case's code, so
// that nothing runs for ever.
func (c *testCase) aim(r *rand.Rand, b []byte, insn arch.Insn) {
	n := len(b)
	switch r.IntN(9) {
	case 0:
		b[n-1] = 0
	case 1, 2, 3, 4:
		b[n-1] = byte(maxSize + r.IntN(60))
	default:
		b[n-1] = -byte(insn.End()-c.at) - byte(maxInsn+r.IntN(48))
	}
	if again, err := decode(b, insn.Addr); err == nil && again.Target == insn.End().Add(int64(int8(b[n-1]))) {
		return // one byte
	}
	if n >= 4 {
		putRel32(b[n-4:], target(r), insn.End())
	}
}

// putRel32 stores the distance from next to to, or one into the reserved range if that
// is too long.
func putRel32(b []byte, to uint64, next arch.Addr) {
	d := int64(to) - int64(next)
	if d < math.MinInt32 || d > math.MaxInt32 {
		d = 0x30000000 + int64(to&0xffffff)
	}
	binary.LittleEndian.PutUint32(b, uint32(d))
}

package program

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// alu is the result of an arithmetic instruction (RFC 9669 §4.1).
func alu(ins asm.Instruction, dst, src uint64) uint64 {
	op := ins.OpCode.ALUOp()
	wide := ins.OpCode.Class() == asm.ALU64Class
	if op == asm.Swap {
		return swap(dst, ins.Constant, wide || ins.OpCode.Endianness() == asm.BE)
	}
	if wide {
		return alu64(op, dst, src)
	}
	return uint64(alu32(op, uint32(dst), uint32(src)))
}

// swap truncates v to some bits and, if reverse is set, turns the order of its bytes round.
func swap(v uint64, size int64, reverse bool) uint64 {
	switch {
	case size == 16 && reverse:
		return uint64(bits.ReverseBytes16(uint16(v)))
	case size == 16:
		return uint64(uint16(v))
	case size == 32 && reverse:
		return uint64(bits.ReverseBytes32(uint32(v)))
	case size == 32:
		return uint64(uint32(v))
	case reverse:
		return bits.ReverseBytes64(v)
	}
	return v
}

func alu64(op asm.ALUOp, dst, src uint64) uint64 {
	switch op {
	case asm.Add:
		return dst + src
	case asm.Sub:
		return dst - src
	case asm.Mul:
		return dst * src
	case asm.Or:
		return dst | src
	case asm.And:
		return dst & src
	case asm.LSh:
		return dst << (src & 63)
	case asm.RSh:
		return dst >> (src & 63)
	case asm.ArSh:
		return uint64(int64(dst) >> (src & 63))
	case asm.Neg:
		return -dst
	case asm.Xor:
		return dst ^ src
	case asm.Mov:
		return src
	case asm.MovSX8:
		return extend(src, 1)
	case asm.MovSX16:
		return extend(src, 2)
	case asm.MovSX32:
		return extend(src, 4)
	}
	return divide(op, dst, src, math.MinInt64)
}

func alu32(op asm.ALUOp, dst, src uint32) uint32 {
	switch op {
	case asm.RSh:
		return dst >> (src & 31)
	case asm.LSh:
		return dst << (src & 31)
	case asm.ArSh:
		return uint32(int32(dst) >> (src & 31))
	case asm.SDiv, asm.SMod:
		return uint32(divide(op, uint64(int32(dst)), uint64(int32(src)), math.MinInt32))
	}
	return uint32(alu64(op, uint64(dst), uint64(src)))
}

// divide is division and remainder. Dividing by zero gives zero, and the remainder is then
// the dividend; the least number divided by -1 is itself.
func divide(op asm.ALUOp, dst, src uint64, least int64) uint64 {
	overflow := int64(dst) == least && int64(src) == -1
	switch op {
	case asm.Div:
		if src == 0 {
			return 0
		}
		return dst / src
	case asm.Mod:
		if src == 0 {
			return dst
		}
		return dst % src
	case asm.SDiv:
		if src == 0 {
			return 0
		}
		if overflow {
			return dst
		}
		return uint64(int64(dst) / int64(src))
	default: // SMod
		if src == 0 {
			return dst
		}
		if overflow {
			return 0
		}
		return uint64(int64(dst) % int64(src))
	}
}

// taken reports whether a jump is taken (RFC 9669 §4.3).
func taken(ins asm.Instruction, dst, src uint64) bool {
	a, b := int64(dst), int64(src)
	if ins.OpCode.Class() == asm.Jump32Class {
		dst, src = uint64(uint32(dst)), uint64(uint32(src))
		a, b = int64(int32(dst)), int64(int32(src))
	}
	switch ins.OpCode.JumpOp() {
	case asm.JEq:
		return dst == src
	case asm.JNE:
		return dst != src
	case asm.JGT:
		return dst > src
	case asm.JGE:
		return dst >= src
	case asm.JLT:
		return dst < src
	case asm.JLE:
		return dst <= src
	case asm.JSet:
		return dst&src != 0
	case asm.JSGT:
		return a > b
	case asm.JSGE:
		return a >= b
	case asm.JSLT:
		return a < b
	case asm.JSLE:
		return a <= b
	}
	return true // Ja
}

// truncate is the low size bytes of v.
func truncate(v uint64, size int) uint64 { return v << (64 - 8*size) >> (64 - 8*size) }

// extend is the low size bytes of v as a signed number.
func extend(v uint64, size int) uint64 {
	return uint64(int64(v<<(64-8*size)) >> (64 - 8*size))
}

// uintOf is p, of up to 8 bytes, as a number.
func uintOf(p []byte) uint64 {
	var b [8]byte
	copy(b[:], p)
	return binary.LittleEndian.Uint64(b[:])
}

// putUint stores the low bytes of v.
func putUint(p []byte, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p, b[:])
}

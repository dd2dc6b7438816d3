package code

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// General registers.
const (
	ax = amd64.AX
	cx = amd64.CX
	dx = amd64.DX
	bx = amd64.BX
	sp = amd64.SP
	bp = amd64.BP
	si = amd64.SI
	di = amd64.DI
)

// asm collects machine code that stands at at. An instruction that does not reach its
// target is generated all the same, so that the length is always right; err records the
// failure.
type asm struct {
	stops arch.Stops
	at    arch.Addr
	code  []byte
	err   error
}

// here is the address of the next instruction.
func (a *asm) here() arch.Addr { return a.at + arch.Addr(len(a.code)) }

// emit appends bytes.
func (a *asm) emit(b ...byte) { a.code = append(a.code, b...) }

// imm32 appends an immediate operand or an absolute displacement.
func (a *asm) imm32(v uint32) { a.code = binary.LittleEndian.AppendUint32(a.code, v) }

// rel32 appends the distance to target from the end of the instruction, which has
// behind more bytes after the displacement.
func (a *asm) rel32(target arch.Addr, behind int) {
	n := len(a.code)
	a.imm32(0)
	if err := amd64.PutRel32(a.code[n:], target, a.here().Add(int64(behind))); err != nil && a.err == nil {
		a.err = err
	}
}

// jmp is a jump with a 32-bit displacement.
func (a *asm) jmp(target arch.Addr) {
	a.emit(0xe9)
	a.rel32(target, 0)
}

// jcc is a conditional jump with a 32-bit displacement; cc as in condition.
func (a *asm) jcc(cc byte, target arch.Addr) {
	a.emit(0x0f, 0x80|cc)
	a.rel32(target, 0)
}

// short begins a short jump forward, whose opcode is op. land says to where.
func (a *asm) short(op byte) (jump int) {
	a.emit(op, 0)
	return len(a.code)
}

// land makes the jump that short began lead here.
func (a *asm) land(jump int) { a.code[jump-1] = rel8(len(a.code) - jump) }

// back is a short jump backward with opcode op.
func (a *asm) back(op byte, to int) { a.emit(op, rel8(to-len(a.code)-2)) }

// rel8 is an 8-bit displacement. The code between such a jump and its target always has
// the same length. So a target out of reach is a mistake in this package, and panics.
func rel8(d int) byte {
	if d != int(int8(d)) {
		panic(fmt.Sprintf("a jump over %d bytes is out of reach of an 8-bit displacement", d))
	}
	return byte(d)
}

// lea loads the address target into the general register reg, relative to rip.
func (a *asm) lea(reg byte, target arch.Addr) {
	a.emit(0x48|reg>>3<<2, 0x8d, 5|reg&7<<3)
	a.rel32(target, 0)
}

// mov copies a general register.
func (a *asm) mov(dst, src byte) { a.emit(0x48|src>>3<<2|dst>>3, 0x89, 0xc0|src&7<<3|dst&7) }

// push stores a general register on the stack.
func (a *asm) push(reg byte) {
	if reg >= 8 {
		a.emit(0x41)
	}
	a.emit(0x50 | reg&7)
}

// pop takes a general register from the stack.
func (a *asm) pop(reg byte) {
	if reg >= 8 {
		a.emit(0x41)
	}
	a.emit(0x58 | reg&7)
}

// moveSP adds n bytes to the stack pointer; no flag changes.
func (a *asm) moveSP(n int32) {
	if n == int32(int8(n)) {
		a.emit(0x48, 0x8d, 0x64, 0x24, byte(n))
		return
	}
	a.emit(0x48, 0x8d, 0xa4, 0x24)
	a.imm32(uint32(n))
}

// fixup says that a thread goes on here when the instruction at at has faulted.
func (a *asm) fixup(at arch.Addr) {
	a.stops = append(a.stops, arch.Stop{At: at, Why: arch.StopFault, To: a.here()})
}

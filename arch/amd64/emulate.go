package amd64

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Bits of eflags (SDM vol. 1 §3.4.3).
const (
	flagCF = 1 << 0
	flagPF = 1 << 2
	FlagZF = 1 << 6
	flagSF = 1 << 7
	FlagTF = 1 << 8
	flagDF = 1 << 10
	flagOF = 1 << 11
	flagRF = 1 << 16
	flagAC = 1 << 18
)

const noReg = -1

// operand is an r/m64 operand of an indirect branch.
type operand struct {
	reg         int8 // the register itself, or noReg for memory
	base, index int8 // of a memory operand, or noReg
	scale       uint8
	disp        int64
	addr32      bool // the offset is cut to 32 bits
	seg         byte // 64 or 65: fs_base or gs_base is added
}

// branch is a near control transfer, ready to be performed.
type branch struct {
	class   class
	op      byte // the last opcode byte, for conditions and loops
	next    uint64
	target  uint64
	operand operand
	pop     uint64 // bytes that ret releases beyond the return address
	count32 bool   // ecx counts, not rcx
}

// newBranch understands f, whose class is c, at i.
func newBranch(f *form, c class, i arch.Insn) *branch {
	b := &branch{
		class: c, op: f.op, next: uint64(i.End()), target: uint64(i.Target), count32: f.addrsize,
	}
	switch c {
	case indirectJump, indirectCall:
		b.operand = newOperand(f, i)
	case ret:
		if f.immLen == 2 {
			b.pop = uint64(binary.LittleEndian.Uint16(i.Bytes[f.imm:]))
		}
	}
	return b
}

// newOperand reads ModRM and SIB (SDM vol. 2A tables 2-2 and 2-3).
func newOperand(f *form, i arch.Insn) operand {
	extend := func(n byte, bit byte) int8 {
		if f.rex&bit != 0 {
			n |= 8
		}
		return int8(n)
	}
	if f.register() {
		return operand{reg: extend(f.rm(), rexB), base: noReg, index: noReg}
	}
	o := operand{reg: noReg, base: extend(f.rm(), rexB), index: noReg, addr32: f.addrsize, seg: f.seg}
	if f.dispLen > 0 {
		o.disp = signed(i.Bytes, f.disp, f.dispLen)
	}
	switch {
	case f.ripRel:
		o.base, o.disp = noReg, int64(i.MemTarget)
	case f.rm() == 4:
		o.base = extend(f.sib&7, rexB)
		if f.sib&7 == 5 && f.mod() == 0 {
			o.base = noReg
		}
		if x := extend(f.sib>>3&7, rexX); x != 4 {
			o.index, o.scale = x, f.sib>>6
		}
	}
	return o
}

// address is the linear address of a memory operand (SDM vol. 1 §3.7.5).
func (o *operand) address(r *Regs) uint64 {
	a := uint64(o.disp)
	if o.base != noReg {
		a += *r.gpr(o.base)
	}
	if o.index != noReg {
		a += *r.gpr(o.index) << o.scale
	}
	if o.addr32 {
		a &= 0xffffffff
	}
	switch o.seg {
	case 0x64:
		a += r.Fs_base
	case 0x65:
		a += r.Gs_base
	}
	return a
}

// value reads the operand.
func (o *operand) value(r *Regs, m arch.Memory) (uint64, error) {
	if o.reg != noReg {
		return *r.gpr(o.reg), nil
	}
	return read64(r, m, o.address(r))
}

var errAlignment = errors.New("alignment is checked")

// aligned fails where the processor raises #AC (SDM vol. 3A §6.15, interrupt 17).
func aligned(r *Regs, at uint64, write bool) error {
	if r.Eflags&flagAC != 0 && at%8 != 0 {
		return &arch.FaultError{Addr: arch.Addr(at), Write: write, Cause: errAlignment}
	}
	return nil
}

func read64(r *Regs, m arch.Memory, at uint64) (uint64, error) {
	if err := aligned(r, at, false); err != nil {
		return 0, err
	}
	var b [8]byte
	if err := m.ReadMemory(arch.Addr(at), b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// ErrRegs tells of registers that are no *Regs.
var ErrRegs = errors.New("registers of another architecture")

// emulate performs b. Registers change only after every access succeeded.
func (b *branch) emulate(regs arch.Regs, m arch.Memory) error {
	r, ok := regs.(*Regs)
	if !ok {
		return fmt.Errorf("%w: %T", ErrRegs, regs)
	}
	switch b.class {
	case jump:
		return b.to(r, b.target)
	case condJump:
		if !condition(b.op&15, r.Eflags) {
			return b.to(r, b.next)
		}
		return b.to(r, b.target)
	case loopJump:
		return b.loop(r)
	case indirectJump:
		target, err := b.operand.value(r, m)
		if err != nil {
			return err
		}
		return b.to(r, target)
	case ret:
		return b.ret(r, m)
	}
	return b.call(r, m)
}

// to sets the instruction pointer, or faults as the branch would.
func (b *branch) to(r *Regs, target uint64) error {
	if !canonical(target) {
		return &arch.FaultError{Addr: arch.Addr(target), Cause: ErrNonCanonical}
	}
	r.Rip = target
	return nil
}

// canonical is the rule of 48-bit linear addresses (SDM vol. 1 §3.3.7.1). A
// processor with 57 bits takes more; it is asked by running the copy.
func canonical(a uint64) bool { return uint64(int64(a<<16)>>16) == a }

// call pushes the successor's address (SDM vol. 2A CALL). The operand is read
// first: it may be relative to rsp.
func (b *branch) call(r *Regs, m arch.Memory) error {
	target := b.target
	if b.class == indirectCall {
		var err error
		if target, err = b.operand.value(r, m); err != nil {
			return err
		}
	}
	if !canonical(target) {
		return b.to(r, target)
	}
	if err := aligned(r, r.Rsp-8, true); err != nil {
		return err
	}
	var link [8]byte
	binary.LittleEndian.PutUint64(link[:], b.next)
	if err := m.WriteMemory(arch.Addr(r.Rsp-8), link[:]); err != nil {
		return err
	}
	r.Rsp -= 8
	return b.to(r, target)
}

// ret pops the return address and releases the caller's bytes (SDM vol. 2B RET).
func (b *branch) ret(r *Regs, m arch.Memory) error {
	target, err := read64(r, m, r.Rsp)
	if err != nil {
		return err
	}
	if err := b.to(r, target); err != nil {
		return err
	}
	r.Rsp += 8 + b.pop
	return nil
}

// loop performs loopne (e0), loope (e1), loop (e2) and jrcxz (e3), whose counter
// has the address size (SDM vol. 2A LOOP, Jcc). None changes flags.
func (b *branch) loop(r *Regs) error {
	count := r.Rcx
	if b.op != 0xe3 {
		count--
	}
	if b.count32 {
		count &= 0xffffffff
	}
	zf := r.Eflags&FlagZF != 0
	taken := count != 0
	switch b.op {
	case 0xe0:
		taken = taken && !zf
	case 0xe1:
		taken = taken && zf
	case 0xe3:
		taken = count == 0
	}
	target := b.next
	if taken {
		target = b.target
	}
	if err := b.to(r, target); err != nil {
		return err
	}
	if b.op != 0xe3 {
		r.Rcx = count
	}
	return nil
}

// condition is the tttn field (SDM vol. 1 appendix B, vol. 2D table B-10).
func condition(cc byte, flags uint64) bool {
	var v bool
	sfOF := flags&flagSF != 0 != (flags&flagOF != 0)
	switch cc >> 1 {
	case 0: // o
		v = flags&flagOF != 0
	case 1: // b
		v = flags&flagCF != 0
	case 2: // e
		v = flags&FlagZF != 0
	case 3: // be
		v = flags&(flagCF|FlagZF) != 0
	case 4: // s
		v = flags&flagSF != 0
	case 5: // p
		v = flags&flagPF != 0
	case 6: // l
		v = sfOF
	case 7: // le
		v = sfOF || flags&FlagZF != 0
	}
	return v != (cc&1 != 0)
}

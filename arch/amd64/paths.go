package amd64

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

var _ arch.Paths = Arch{}

// How far back an indirect jump's table and bounds check are looked for, in instructions. Compilers keep them together.
const (
	tableWindow  = 32
	numberWindow = 8
)

// parsed takes i, which has been decoded once, apart.
func parsed(i arch.Insn) form {
	f, _ := parse(i.Bytes)
	return f
}

// general registers of f's operands, extended by REX. index is -1 if there is none.
func (f *form) regNumber() int { return int(f.reg()) | int(f.rex&rexR)<<1 }
func (f *form) rmNumber() int  { return int(f.rm()) | int(f.rex&rexB)<<3 }

// address is a memory operand's parts; base and index are -1 if there are none.
func (f *form) address(code []byte) (base, index, scale int, disp int64) {
	base, index, scale = -1, -1, 1
	if f.dispLen > 0 {
		disp = signed(code, f.disp, f.dispLen)
	}
	if f.rm() != 4 {
		if !f.ripRel {
			base = f.rmNumber()
		}
		return base, index, scale, disp
	}
	if b := int(f.sib & 7); b != 5 || f.mod() != 0 {
		base = b | int(f.rex&rexB)<<3
	}
	if x := int(f.sib>>3&7) | int(f.rex&rexX)<<2; x != 4 {
		index, scale = x, 1<<(f.sib>>6)
	}
	return base, index, scale, disp
}

// JumpTable knows the forms of GCC, Clang and Go:
//
//	jmp *table(,%i,8)    jmp *(%t,%i,8)    mov (%t,%i,8),%r; jmp *%r
//	movslq (%t,%i,4),%r; add %f,%r; jmp *%r, also with lea (%f,%r) in place of add
//
// where %t, and %f, which mostly is the same, were loaded by lea table(%rip) or mov $table. The number of entries is that of the unsigned comparison in front.
func (Arch) JumpTable(insns []arch.Insn) (t arch.JumpTable, ok bool) {
	last := insns[len(insns)-1]
	f := parsed(last)
	if f.op != 0xff || !f.hasModRM || f.reg() != 4 {
		return t, false
	}
	before := insns[max(0, len(insns)-1-tableWindow) : len(insns)-1]
	if f.register() {
		t, ok = tableOf(before, f.rmNumber())
	} else {
		t, ok = absoluteTable(before, &f, last)
	}
	if t.Size > 0 {
		t.Len = bound(before)
	}
	return t, ok
}

// absoluteTable is the table of 8-byte addresses in which f's memory operand lies.
func absoluteTable(before []arch.Insn, f *form, i arch.Insn) (t arch.JumpTable, ok bool) {
	base, index, scale, disp := f.address(i.Bytes)
	if index < 0 || scale != 8 || f.seg != 0 || f.addrsize {
		return t, false
	}
	t.Size = 8
	switch {
	case base < 0 && disp > 0:
		t.Base = arch.Addr(disp)
		return t, true
	case base < 0:
		return t, false
	}
	at, ok := constant(before, base)
	t.Base = at.Add(disp)
	return t, ok
}

// tableOf is the table from which register r was made, by the instructions before.
func tableOf(before []arch.Insn, r int) (t arch.JumpTable, ok bool) {
	for n := len(before) - 1; n >= 0; n-- {
		f := parsed(before[n])
		if f.space != oneByte || !f.hasModRM {
			continue
		}
		switch {
		case f.op == 0x8b && f.regNumber() == r && !f.register():
			return absoluteTable(before[:n], &f, before[n])
		case f.op == 0x01 && f.register() && f.rmNumber() == r:
			return deltaTable(before[:n], f.regNumber(), r)
		case f.op == 0x03 && f.register() && f.regNumber() == r:
			return deltaTable(before[:n], f.rmNumber(), r)
		case f.op == 0x8d && !f.ripRel && f.regNumber() == r:
			base, index, scale, disp := f.address(before[n].Bytes)
			if base < 0 || index < 0 || scale != 1 || disp != 0 {
				return t, false
			}
			return deltaTable(before[:n], base, index)
		case f.op == 0x8d && f.regNumber() == r:
			return arch.JumpTable{Base: before[n].MemTarget}, true
		}
	}
	return t, false
}

// deltaTable is a table of distances: one of two registers holds a distance from it,
// the other the address that it counts from.
func deltaTable(before []arch.Insn, a, b int) (t arch.JumpTable, ok bool) {
	for n := len(before) - 1; n >= 0; n-- {
		f := parsed(before[n])
		if f.space != oneByte || f.op != 0x63 && f.op != 0x8b || f.register() || f.seg != 0 {
			continue
		}
		from := a
		switch f.regNumber() {
		case a:
			from = b
		case b:
		default:
			continue
		}
		base, index, scale, disp := f.address(before[n].Bytes)
		if base < 0 || index < 0 || scale != 1 && scale != 4 {
			return t, false
		}
		t.Base, ok = constant(before[:n], base)
		if !ok && scale == 1 {
			t.Base, ok = constant(before[:n], index)
		}
		t.Base, t.Size = t.Base.Add(disp), 4
		var known bool
		t.From, known = constant(before, from)
		return t, ok && known
	}
	return t, false
}

// constant is the address that the last of before to load register r has loaded.
func constant(before []arch.Insn, r int) (arch.Addr, bool) {
	for n := len(before) - 1; n >= 0; n-- {
		i := before[n]
		f := parsed(i)
		switch {
		case f.space != oneByte:
		case f.op == 0x8d && f.ripRel && f.regNumber() == r:
			return i.MemTarget, true
		case f.op&0xf8 == 0xb8 && int(f.op&7)|int(f.rex&rexB)<<3 == r && f.immLen >= 4:
			return arch.Addr(immediate(&f, i.Bytes)), true
		case f.op == 0xc7 && f.register() && f.rmNumber() == r && f.immLen == 4:
			return arch.Addr(signed(i.Bytes, f.imm, 4)), true
		}
	}
	return 0, false
}

func immediate(f *form, code []byte) uint64 {
	if f.immLen == 8 {
		return binary.LittleEndian.Uint64(code[f.imm:])
	}
	return uint64(binary.LittleEndian.Uint32(code[f.imm:]))
}

// bound is how many values an index has that passes the last unsigned comparison with a constant, or mask; 0 if there is none.
func bound(before []arch.Insn) int {
	more := -1 // what the branch adds to the constant
	for n := len(before) - 1; n >= 0; n-- {
		i := before[n]
		f := parsed(i)
		switch {
		case f.space == oneByte && (f.op == 0x77 || f.op == 0x76), f.space == map0F && (f.op == 0x87 || f.op == 0x86): // ja, jbe
			more = 1
		case f.space == oneByte && (f.op == 0x73 || f.op == 0x72), f.space == map0F && (f.op == 0x83 || f.op == 0x82): // jae, jb
			more = 0
		case f.space != oneByte || f.immLen == 0 || f.immLen > 4:
		case more >= 0 && (f.op == 0x3c || f.op == 0x3d || f.hasModRM && f.op >= 0x80 && f.op <= 0x83 && f.reg() == 7): // cmp
			return int(signed(i.Bytes, f.imm, f.immLen)) + more
		case f.hasModRM && f.register() && (f.op == 0x81 || f.op == 0x83) && f.reg() == 4 && more < 0: // and
			if mask := signed(i.Bytes, f.imm, f.immLen); mask > 0 && mask&(mask+1) == 0 {
				return int(mask) + 1
			}
		}
	}
	return 0
}

// Ends knows exit, exit_group and rt_sigreturn, where the number is a constant that is loaded right before.
func (Arch) Ends(insns []arch.Insn) bool {
	for n := len(insns) - 2; n >= 0 && n >= len(insns)-1-numberWindow; n-- {
		i := insns[n]
		if i.Flow != arch.FlowNext || i.End() != insns[n+1].Addr {
			return false
		}
		f := parsed(i)
		switch {
		case f.space != oneByte:
		case f.op == 0xb8 && f.rex&rexB == 0 && f.immLen == 4:
			return leaves(int64(immediate(&f, i.Bytes)))
		case f.op == 0xc7 && f.register() && f.rmNumber() == 0 && f.immLen == 4:
			return leaves(signed(i.Bytes, f.imm, 4))
		case f.op == 0x58 && f.rex&rexB == 0 && n > 0: // pop %rax, behind push $n
			if p := parsed(insns[n-1]); p.space == oneByte && p.op == 0x6a {
				return leaves(signed(insns[n-1].Bytes, p.imm, 1))
			}
			return false
		}
	}
	return false
}

// leaves tells that the system call of that number does not return (arch/x86/entry/syscalls/syscall_64.tbl).
func leaves(number int64) bool { return number == 60 || number == 231 || number == 15 }

// Taken follows the register of a lea to the first instruction that uses it.
func (Arch) Taken(insns []arch.Insn) bool {
	f := parsed(insns[0])
	if f.space != oneByte || f.op != 0x8d || !f.ripRel {
		return false
	}
	r := f.regNumber()
	for _, i := range insns[1:] {
		f := parsed(i)
		if f.space == oneByte && f.op == 0xff && f.register() && (f.reg() == 2 || f.reg() == 4) {
			return f.rmNumber() == r
		}
		if i.Flow != arch.FlowNext || f.names(i.Bytes, r) {
			return false
		}
	}
	return false
}

// names tells that register r may be among f's explicit operands.
func (f *form) names(code []byte, r int) bool {
	if !f.hasModRM {
		return f.op&0xf0 == 0x50 && int(f.op&7)|int(f.rex&rexB)<<3 == r || f.op&0xf0 == 0xb0
	}
	if f.regNumber() == r || f.register() && f.rmNumber() == r {
		return true
	}
	if f.register() {
		return false
	}
	base, index, _, _ := f.address(code)
	return base == r || index == r
}

// PopsReturn knows pop of a register.
func (Arch) PopsReturn(i arch.Insn) bool {
	f := parsed(i)
	return f.space == oneByte && f.op >= 0x58 && f.op <= 0x5f
}

// Improbable knows instructions that no program may execute at privilege level 3 (I/O,
// cli, and others), far returns, and add %al,(%rax), which is two zeros. hlt is not
// among them: compilers put it behind a call that doesn't return.
func (Arch) Improbable(i arch.Insn) bool {
	f := parsed(i)
	switch classOf(&f, i.Bytes) {
	case privileged, farReturn:
		return i.Flow != arch.FlowTrap
	}
	return f.space == oneByte && f.op == 0x00 && len(i.Bytes) == 2 && i.Bytes[1] == 0
}

// Padding knows int3 and nop in each of its lengths (SDM vol. 2B, NOP, table 4-12), prefixes included.
func (Arch) Padding(i arch.Insn) bool {
	b := i.Bytes
	if len(b) == 1 && b[0] == 0xcc {
		return true
	}
	for len(b) > 1 && (b[0] == 0x66 || b[0] == 0x2e) {
		b = b[1:]
	}
	return b[0] == 0x90 || len(b) > 1 && b[0] == 0x0f && b[1] == 0x1f
}

// EachBranch looks for branches with a 32-bit displacement: jmp, call, jcc.
func (Arch) EachBranch(code []byte, start arch.Addr, f func(at, to arch.Addr)) {
	const jumpLen = 5
	for i := 0; i+jumpLen <= len(code); i++ {
		end := i + jumpLen
		switch {
		case code[i] == 0xe8, code[i] == 0xe9:
		case code[i] == 0x0f && code[i+1]&0xf0 == 0x80 && end < len(code):
			end++
		default:
			continue
		}
		f(start+arch.Addr(i), (start + arch.Addr(end)).Add(int64(int32(binary.LittleEndian.Uint32(code[end-4:])))))
	}
}

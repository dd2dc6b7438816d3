package amd64

import (
	"bytes"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

// Caller reads the return address that call has pushed (System V ABI §3.4.1; Go's
// ABIInternal is the same in this).
func (Arch) Caller(r arch.Regs, m arch.Memory) (ret, cfa arch.Addr, err error) {
	var b [8]byte
	if err := m.ReadMemory(r.SP(), b[:]); err != nil {
		return 0, 0, err
	}
	return arch.Addr(binary.LittleEndian.Uint64(b[:])), r.SP() + 8, nil
}

// Returned looks at what ret has popped, which the red zone keeps there: where a handler of
// an exception goes on, it has made calls of its own since. In Go a recovered panic goes on
// at a call of runtime.deferreturn, which may be what the function that has panicked would have
// returned to; gogo (src/runtime/asm_amd64.s) jumps there by rbx.
func (Arch) Returned(r arch.Regs, m arch.Memory, i arch.Insn) bool {
	var b [8]byte
	if m.ReadMemory(r.SP()-8, b[:]) != nil || arch.Addr(binary.LittleEndian.Uint64(b[:])) != i.Addr {
		return false
	}
	rbx, _ := r.Get("rbx")
	return i.Flow != arch.FlowCall || arch.Addr(rbx) != i.Addr
}

// Goroutine looks into r14, where ABIInternal keeps g, and where that is something else into
// thread-local storage (src/runtime/tls_amd64.s).
func (Arch) Goroutine(r arch.Regs, m arch.Memory) (g, stackBase arch.Addr, ok bool) {
	current, _ := r.Get("r14")
	if stackBase, ok := stackOf(arch.Addr(current), r.SP(), m); ok {
		return arch.Addr(current), stackBase, true
	}
	var b [8]byte
	tp, _ := r.Get("fs_base")
	if m.ReadMemory(arch.Addr(tp-8), b[:]) != nil {
		return 0, 0, false
	}
	g = arch.Addr(binary.LittleEndian.Uint64(b[:]))
	stackBase, ok = stackOf(g, r.SP(), m)
	return g, stackBase, ok
}

// stackOf reads g.stack, the first fields of a g (src/runtime/runtime2.go).
func stackOf(g, sp arch.Addr, m arch.Memory) (hi arch.Addr, ok bool) {
	var b [16]byte
	if g == 0 || m.ReadMemory(g, b[:]) != nil {
		return 0, false
	}
	lo, hi := arch.Addr(binary.LittleEndian.Uint64(b[:])), arch.Addr(binary.LittleEndian.Uint64(b[8:]))
	return hi, lo < sp && sp <= hi
}

// Parked reads g.stack.hi, g.m and g.sched, which are where they are since Go 1.17. The
// scheduler sets g.m before it runs g and clears it after, and g.sched is right in
// between (src/runtime/proc.go, execute and dropg).
func (Arch) Parked(g arch.Addr, m arch.Memory) (pc, sp, stackBase arch.Addr, ok bool) {
	const words, hi, thread, schedSP, schedPC = 9, 1, 6, 7, 8
	var b [8 * words]byte
	if m.ReadMemory(g, b[:]) != nil {
		return 0, 0, 0, false
	}
	word := func(i int) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(b[8*i:])) }
	return word(schedPC), word(schedSP), word(hi), word(thread) == 0
}

// beforeStackCheck lists instructions that Go's assembler may put in front of the
// comparison with the stack guard (src/cmd/internal/obj/x86/obj6.go, stacksplit). An
// ABI0 function loads g; for a large frame, the rsp that it will have is compared.
// operand is the number of bytes that follow.
var beforeStackCheck = []struct {
	code    []byte
	operand int
}{
	{[]byte{0x64, 0x4c, 0x8b, 0x34, 0x25}, 4}, // mov %fs:disp32,%r14
	{[]byte{0x64, 0x48, 0x8b, 0x0c, 0x25}, 4}, // mov %fs:disp32,%rcx
	{[]byte{0x4c, 0x8b, 0x35}, 4},             // mov disp32(%rip),%r14: g's offset, then
	{[]byte{0x64, 0x4d, 0x8b, 0x36}, 0},       // mov %fs:(%r14),%r14
	{[]byte{0x4c, 0x8d, 0x64, 0x24}, 1},       // lea disp8(%rsp),%r12
	{[]byte{0x4c, 0x8d, 0xa4, 0x24}, 4},       // lea disp32(%rsp),%r12
	{[]byte{0x49, 0x89, 0xe4}, 0},             // mov %rsp,%r12, then
	{[]byte{0x49, 0x81, 0xec}, 4},             // sub $imm32,%r12, then
	{[]byte{0x0f, 0x82}, 4},                   // jb rel32: it has wrapped around
	{[]byte{0x72}, 1},                         // jb rel8
}

// stackCheck compares rsp or r12 with g's stackguard0 or stackguard1.
var stackCheck = [][]byte{
	{0x49, 0x3b, 0x66, 0x10}, // cmp 16(%r14),%rsp
	{0x4d, 0x3b, 0x66, 0x10}, // cmp 16(%r14),%r12
	{0x49, 0x3b, 0x66, 0x18},
	{0x4d, 0x3b, 0x66, 0x18},
	{0x48, 0x3b, 0x61, 0x10}, // cmp 16(%rcx),%rsp
	{0x4c, 0x3b, 0x61, 0x10},
	{0x48, 0x3b, 0x61, 0x18},
	{0x4c, 0x3b, 0x61, 0x18},
}

// StackCheck recognizes what the Go compiler and assembler generate.
func (Arch) StackCheck(code []byte) int {
	rest := code
	for cut := true; cut; {
		cut = false
		for _, p := range beforeStackCheck {
			if n := len(p.code) + p.operand; len(rest) >= n && bytes.HasPrefix(rest, p.code) {
				rest, cut = rest[n:], true
				break
			}
		}
	}
	for _, p := range stackCheck {
		after, ok := bytes.CutPrefix(rest, p)
		switch {
		case !ok:
		case len(after) >= 6 && after[0] == 0x0f && after[1] == 0x86: // jbe rel32
			return len(code) - len(after) + 6
		case len(after) >= 2 && after[0] == 0x76: // jbe rel8
			return len(code) - len(after) + 2
		}
	}
	return 0
}

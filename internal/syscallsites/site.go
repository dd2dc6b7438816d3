// Package syscallsites finds where code makes system calls: which instructions do, with which number, and where a probe on such a call may stand.
//
// Executable mappings are searched for the bytes of the system-call instruction. Those that begin an
// instruction, decoded from the start of the function around them, are sites. The instructions in front of
// one that only set registers tell its number, if it is a constant; that
//
//	mov $257,%eax
//	syscall
//
// calls openat, and is no place for a probe on anything else. And they make room: a probe on the system-call
// instruction itself stops its thread twice a call, and can't be optimized, since the kernel has to be entered from
// the original address. One at the mov has a jump that ends in front of the system call. It sees registers as they are
// there, which the moves that follow turn into those of the call.
//
// A thread must come from the probe's place to the instruction in one way only, through it. So nothing behind that place, up to the
// instruction, may be the target of a branch: of those in its function, of those anywhere in the
// mapping that have 32 bits of displacement (a part that the compiler has split off returns by such), nor may the
// function have an indirect jump, whose targets nobody knows. Else the probe is on the instruction itself. If such a way leads around the
// load of the number, the number is unknown, and the probe reads it when it is hit. A thread that is past the probe's place when the probe
// comes is not seen: its call has begun before.
//
// The package is pure: it sees code as bytes, and asks what else it has to know.
package syscallsites

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// Host is what the search asks of an architecture; arch.Arch says more of its methods.
type Host interface {
	NewRegs() arch.Regs
	Decode(code []byte, at arch.Addr) (arch.Insn, error)
	MaxInsnLen() int
	SyscallInsn() []byte
	SigreturnLoads() [][]byte
	Load(i arch.Insn, r arch.Regs, m arch.Memory) error
	KeepsNumber(i arch.Insn) bool
	EachBranch(code []byte, start arch.Addr, f func(at, to arch.Addr))
}

// Site is an instruction that makes system calls.
type Site struct {
	Insn   arch.Addr   // that
	At     arch.Addr   // where a probe stands; Insn itself, if it has to
	Loads  []arch.Insn // what is executed from there to Insn
	Number int         // AnyNumber if only the registers tell
}

// Load puts into r what the instructions that lead to the call load from m. It is false if that can't be, and r is of no use then.
func (s *Site) Load(host Host, r arch.Regs, m arch.Memory) bool {
	for _, load := range s.Loads {
		if host.Load(load, r, m) != nil {
			return false
		}
	}
	return true
}

// Vague is memory of which nothing is known: all its bytes are the same.
type Vague byte

// ReadMemory implements arch.Memory.
func (v Vague) ReadMemory(_ arch.Addr, p []byte) error {
	for i := range p {
		p[i] = byte(v)
	}
	return nil
}

// WriteMemory implements arch.Memory.
func (v Vague) WriteMemory(arch.Addr, []byte) error { return nil }

// fills are what registers and memory are filled with, to see what depends on them.
var fills = [2]byte{0x11, 0x22}

// filled is registers of which nothing is known.
func filled(host Host, fill byte) arch.Regs {
	regs := host.NewRegs()
	for i, name := range regs.Names() {
		regs.Set(name, uint64(fill)*0x0101010101010101+uint64(i))
	}
	return regs
}

// Constant is what value tells of the registers in front of the call, if that is always the same.
func (s *Site) Constant(host Host, value func(arch.Regs) uint64) (v uint64, always bool) {
	var results [2]uint64
	for k, fill := range fills {
		regs := filled(host, fill)
		if !s.Load(host, regs, Vague(fill)) {
			return 0, false
		}
		results[k] = value(regs)
	}
	return results[0], results[0] == results[1]
}

// Gap is code that makes system calls and can't be probed.
type Gap struct {
	Number int // AnyNumber: any
	Why    string
}

// Describe is why a probe on numbers can't be by sites; empty if it can.
func Describe(gaps []Gap, numbers []int) string {
	var why []string
	for _, g := range gaps {
		if g.Number < 0 || slices.Contains(numbers, g.Number) {
			why = append(why, g.Why)
		}
	}
	switch {
	case len(why) > 2:
		return fmt.Sprintf("%s; %s; and %d more", why[0], why[1], len(why)-2)
	default:
		return strings.Join(why, "; ")
	}
}

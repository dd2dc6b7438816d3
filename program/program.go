// Package program is work that a probe does without a tracer: eBPF instructions over the
// registers at the hit, the target's memory and maps in shared memory. It builds such
// programs, checks that they are safe, interprets them, and reads the maps.
//
// An architecture compiles a checked program into the body of a detour. The interpreter
// says what the compiled code must do.
//
// The instruction set is BPF's (RFC 9669), version 4, without loops, calls of BPF
// functions, and legacy packet access. r1 points to the context at the start: the
// registers at the hit, 8 bytes each, in the order of Program.Regs, read-only. r10 is
// the end of StackSize bytes of stack. Helpers are called by the numbers of this
// package; r0 is their result and r1 to r5 are lost. A program ends with exit; r0 means
// nothing then, unless the program decides (Program.Decides).
package program

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Limits that Check enforces.
const (
	MaxInsns  = 4096 // instructions of a program
	StackSize = 64   // bytes below r10
	MaxRecord = 8192 // bytes of a record's payload
	MaxMaps   = 64   // maps of a program
	MaxRegs   = 64   // registers of the context
)

// Program is work at a hit. It is not changed after it has been built; several sites, and
// several goroutines, may share it.
type Program struct {
	// Name is for messages.
	Name string
	// ID stands in each of the program's records.
	ID uint32
	// Decides tells that r0 at the end says whether the probe's handler is to run: 0 is no. Check
	// demands a number in r0 on every way to an exit then.
	Decides bool
	// Regs names what the context holds: the register at offset 8n is Regs[n]. They are
	// arch.Regs.Names(), and others that the compiler knows. rip is the address of the
	// site plus one, as for the kernel's handlers.
	Regs []string
	// Insns are the instructions. A jump names its target by a label
	// (asm.Instruction.WithReference) or by a raw offset, which counts a 64-bit load as two.
	Insns asm.Instructions
	// Maps are the maps that the program uses; asm.LoadMapPtr names one by its index.
	Maps []Map
	// Fields are what a record's payload consists of. They are for readers; the
	// instructions need not agree with them.
	Fields []Field
}

// Field is a run of bytes in the payload of a record.
type Field struct {
	Name string
	Off  int // from the beginning of the payload
	Size int // bytes
	// Err is the offset of a 64-bit word that a read's result is in (Read, ReadString,
	// ReadN: a length, or negative for an address that can't be read); negative if there is
	// none.
	Err int
}

// State is the index of the program's state among its maps, -1 if it has none.
func (p *Program) State() int {
	return slices.IndexFunc(p.Maps, func(m Map) bool { return m.Kind == State })
}

// ReadsMemory tells whether p reads memory of the target's that registers lead to.
func (p *Program) ReadsMemory() bool {
	return slices.ContainsFunc(p.Insns, func(i asm.Instruction) bool {
		if !i.IsBuiltinCall() {
			return false
		}
		switch asm.BuiltinFunc(i.Constant) {
		case Read, ReadN, ReadString:
			return true
		}
		return false
	})
}

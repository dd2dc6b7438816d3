package program

import "github.com/cilium/ebpf/asm"

// Checked is a program that Check has found safe, with Check's findings.
type Checked struct {
	*Program
	Code []Insn // one for each of Program.Insns
}

// Insn is an instruction that is reached on some way through the program.
type Insn struct {
	asm.Instruction
	// Target is the index in Code that a jump leads to; always more than its own. -1 for
	// all other instructions.
	Target int
	// Mem and Off say what a load or store accesses: the pointer register holds the same
	// address whenever the instruction runs.
	Mem Region
	Off int
	// Ptr tells that the destination register holds an address after the instruction, which
	// is always PtrMem and PtrOff. The code needs it only for loads, stores and helpers,
	// where it is said again; so a compiler that does not use registers for addresses may
	// leave out the instruction.
	Ptr    bool
	PtrMem Region
	PtrOff int
	// Live are the registers that are read after the instruction before they are written
	// again, on any way: bit n is rn. Addresses are among them.
	Live uint16
	// Call is what a call of a helper is given; nil for all other instructions.
	Call *HelperCall
}

// Region is memory that a program may access.
type Region uint8

const (
	NoRegion  Region = iota
	InContext        // offset 8n is Program.Regs[n]; only loads of 1, 2, 4, 8 bytes inside of one register
	InStack          // offsets from -StackSize to -1; 0 is r10
	InRecord         // offsets from the beginning of the payload
	InMap            // a map pointer; the offset is the map's index; never accessed
)

func (r Region) String() string {
	return [...]string{"nothing", "the context", "the stack", "the record", "a map"}[r]
}

// HelperCall is a call of a helper with the arguments that are known beforehand.
type HelperCall struct {
	Func asm.BuiltinFunc
	*Helper
	Map  int    // index of the map that is the first argument; -1 if none is
	Lost int    // RingReserve: index of the counter of losses
	Size int    // value of the ArgSize argument
	Cell int    // value of the ArgCell argument
	Dst  Region // of the ArgDst argument
	Off  int
	// ResultUnused is set if r0 is never read after the call.
	ResultUnused bool
}

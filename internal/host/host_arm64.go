package host

import (
	"debug/elf"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/arm64"
	"github.com/gokprobe/gokprobe/program"
)

// Supported is nil where processes can be traced; else it wraps arch.ErrUnsupported.
func Supported() error { return arm64.ErrUnsupported }

// Arch decodes and plans: here it refuses to.
var Arch arch.Arch = arm64.Arch{}

// Code generates the planned code.
var Code arch.Code

// Compiler makes machine code of programs.
var Compiler program.Compiler

// What else makes code, and what else the architecture knows.
var (
	Detours    arch.Detours
	CallBodies arch.CallBodies
	Upcalls    arch.Upcalls
	Guards     arch.Guards
	Masks      arch.Masks
	Relays     arch.Relays
	Frames     arch.Frames
	Contexts   arch.Contexts
	Evaluator  arch.Evaluator
)

// How functions and system calls are called, and registers with a role of their own.
var (
	C      = arm64.C
	Go     = arm64.Go
	Kernel = arm64.Kernel
	Roles  = arm64.Roles
)

// RegisterName is the name of a whole register by that or by the kernel's name for it.
func RegisterName(name string) (canonical string, ok bool) { return arm64.RegisterName(name) }

// Registers by their DWARF numbers.
const (
	DwarfFP    = arm64.DwarfFP
	DwarfSP    = arm64.DwarfSP
	DwarfIP    = arm64.DwarfIP
	DwarfCount = arm64.DwarfCount
)

// DirectCallLen is the length of a call of an address that is in the instruction.
const DirectCallLen = arm64.DirectCallLen

// DwarfNames are their names, DwarfKept the numbers of those that functions leave to their callers as they were, and SignalContext those of what struct sigcontext
// begins with.
var (
	DwarfNames    = arm64.DwarfNames
	DwarfKept     = arm64.DwarfKept
	SignalContext = arm64.SignalContext
)

// Types of relocations that bind functions and words.
const (
	RelocRelative = arm64.RelocRelative
	RelocIndirect = arm64.RelocIndirect
	RelocSlot     = arm64.RelocSlot
	RelocGlobal   = arm64.RelocGlobal
	RelocWord     = arm64.RelocWord
)

// Regs is one thread's general registers.
type Regs = arm64.Regs

// Machine is that of the files that processes run.
const Machine = elf.EM_AARCH64

const (
	BreakpointCode = 1 // TRAP_BRKPT
	OwnTrap        = ""
	AuditArch      = 0xc00000b7 // AUDIT_ARCH_AARCH64 (linux/audit.h)
)

// System calls that the architecture does not have: no call has such a number.
const (
	SysFork = 1<<62 + iota
	SysVfork
	SysPoll
	SysSelect
	SysEpollWait
)

// CallNumbers are those of system calls by their names, and CallNames the other way round. PauseLoop is code that is in pause(2) for ever.
var (
	CallNumbers map[string]int
	CallNames   map[int]string
	PauseLoop   []byte
)

// BeginsProcess tells of a system call's number that it makes a process, or another program of it.
func BeginsProcess(int) bool { return false }

// Ticks is the clock that programs in the target read: none do.
func Ticks() uint64 { return 0 }

// What package bench measures probes of.
var (
	WorkloadFunctions []struct {
		Name      string
		Off, Size uint64
	}
	WorkloadSmall []byte
)

// WorkloadSmallSize is the length of the small function.
const WorkloadSmallSize = 0

func Workload() []byte                       { return nil }
func Enter(fn, block, number, third uintptr) {}

// Registers are not exchanged: no thread is ever traced.

func ReadRegs(tid int, r *Regs) error                       { return arm64.ErrUnsupported }
func WriteRegs(tid int, old, r *Regs) error                 { return arm64.ErrUnsupported }
func WriteAllRegs(tid int, r *Regs) error                   { return arm64.ErrUnsupported }
func WriteIP(tid int, ip arch.Addr) error                   { return arm64.ErrUnsupported }
func WriteResult(tid int, v int64) error                    { return arm64.ErrUnsupported }
func BreakAt(tid int, ats ...arch.Addr) error               { return arm64.ErrUnsupported }
func BreakNowhere(tid int) error                            { return arm64.ErrUnsupported }
func ReadExtended(int, []byte) ([]byte, error)              { return nil, arm64.ErrUnsupported }
func WriteExtended(tid int, image []byte) error             { return arm64.ErrUnsupported }
func X87(tid, n int) (v [10]byte, err error)                { return v, arm64.ErrUnsupported }
func Vector(tid, n int) (lo, hi uint64, err error)          { return 0, 0, arm64.ErrUnsupported }
func SetVector(image []byte, n int, lo, hi uint64)          {}
func MoveLastFPUInsn(image []byte, from, to arch.Addr) bool { return false }
func EmptyX87(image []byte) (changed bool)                  { return false }

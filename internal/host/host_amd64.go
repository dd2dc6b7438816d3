package host

import (
	"debug/elf"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/arch/amd64/jit"
	"github.com/gokprobe/gokprobe/arch/amd64/linux"
	"github.com/gokprobe/gokprobe/arch/amd64/workload"
	"github.com/gokprobe/gokprobe/program"
)

// Supported is nil where processes can be traced; else it wraps arch.ErrUnsupported.
func Supported() error { return nil }

// Arch decodes and plans.
var Arch arch.Arch = amd64.Arch{}

// Code generates the planned code.
var Code arch.Code = code.Arch{}

// Compiler makes machine code of programs.
var Compiler program.Compiler = jit.Compiler{}

// What else makes code, and what else the architecture knows.
var (
	Detours    arch.Detours    = code.Arch{}
	CallBodies arch.CallBodies = code.Arch{}
	Upcalls    arch.Upcalls    = code.Arch{}
	Guards     arch.Guards     = code.Arch{}
	Masks      arch.Masks      = code.Arch{}
	Relays     arch.Relays     = code.Arch{}
	Frames     arch.Frames     = code.Arch{}
	Contexts   arch.Contexts   = code.Arch{}
	Evaluator  arch.Evaluator  = amd64.Arch{}
)

// How functions and system calls are called, and registers with a role of their own.
var (
	C      = amd64.C
	Go     = amd64.Go
	Kernel = amd64.Kernel
	Roles  = amd64.Roles
)

// RegisterName is the name of a whole register by that or by the kernel's name for it.
func RegisterName(name string) (canonical string, ok bool) { return amd64.RegisterName(name) }

// Registers by their DWARF numbers.
const (
	DwarfFP    = amd64.DwarfFP
	DwarfSP    = amd64.DwarfSP
	DwarfIP    = amd64.DwarfIP
	DwarfCount = amd64.DwarfCount
)

// DirectCallLen is the length of a call of an address that is in the instruction.
const DirectCallLen = amd64.DirectCallLen

// DwarfNames are their names, DwarfKept the numbers of those that functions leave to their callers as they were, and SignalContext those of what struct sigcontext
// begins with.
var (
	DwarfNames    = amd64.DwarfNames
	DwarfKept     = amd64.DwarfKept
	SignalContext = amd64.SignalContext
)

// Types of relocations that bind functions and words.
const (
	RelocRelative = amd64.RelocRelative
	RelocIndirect = amd64.RelocIndirect
	RelocSlot     = amd64.RelocSlot
	RelocGlobal   = amd64.RelocGlobal
	RelocWord     = amd64.RelocWord
)

// Regs is one thread's general registers as ptrace exchanges them.
type Regs = amd64.Regs

// Machine is that of the files that processes run.
const Machine = elf.EM_X86_64

const (
	BreakpointCode = linux.BreakpointCode // si_code of a breakpoint's SIGTRAP
	OwnTrap        = linux.OwnTrap        // an instruction that raises what a single step over a system call does; "": none
	AuditArch      = linux.AuditArch      // of calls by the architecture's own ABI

	SysFork      = linux.SysFork
	SysVfork     = linux.SysVfork
	SysPoll      = linux.SysPoll
	SysSelect    = linux.SysSelect
	SysEpollWait = linux.SysEpollWait
)

// CallNumbers are those of system calls by their names, and CallNames the other way round. PauseLoop is code that is in pause(2) for ever.
var (
	CallNumbers = linux.CallNumbers
	CallNames   = linux.CallNames
	PauseLoop   = linux.PauseLoop
)

// BeginsProcess tells of a system call's number that it makes a process, or another program of it.
func BeginsProcess(nr int) bool { return linux.BeginsProcess(nr) }

// Ticks is the clock that programs in the target read.
func Ticks() uint64 { return linux.Ticks() }

// What package bench measures probes of: code with some functions, and a small function.
var (
	WorkloadFunctions = workload.Functions
	WorkloadSmall     = workload.Small
)

// WorkloadSmallSize is the length of the small function; padding follows.
const WorkloadSmallSize = workload.SmallSize

// Workload is a view of that code in this program.
func Workload() []byte { return workload.Code() }

// Enter calls fn of it, on the goroutine's stack.
func Enter(fn, block, number, third uintptr) { workload.Enter(fn, block, number, third) }

// ReadRegs fills r with the registers of a stopped thread.
func ReadRegs(tid int, r *Regs) error { return linux.ReadRegs(tid, r) }

// WriteRegs stores the registers that differ between old, which the thread has, and r.
func WriteRegs(tid int, old, r *Regs) error { return linux.WriteRegs(tid, old, r) }

// WriteAllRegs stores all registers, changed or not.
func WriteAllRegs(tid int, r *Regs) error { return linux.WriteAllRegs(tid, r) }

// WriteIP stores the instruction pointer alone.
func WriteIP(tid int, ip arch.Addr) error { return linux.WriteIP(tid, ip) }

// WriteResult stores the result of a system call alone.
func WriteResult(tid int, v int64) error { return linux.WriteResult(tid, v) }

// ReadExtended reads all registers but the general ones into buf, as an image, and returns what there is.
func ReadExtended(tid int, buf []byte) ([]byte, error) { return linux.ReadExtended(tid, buf) }

// WriteExtended gives the thread the registers of image.
func WriteExtended(tid int, image []byte) error { return linux.WriteExtended(tid, image) }

// X87 is x87 register n.
func X87(tid, n int) ([10]byte, error) { return linux.X87(tid, n) }

// Vector is the low 128 bits of vector register n.
func Vector(tid, n int) (lo, hi uint64, err error) { return linux.Vector(tid, n) }

// SetVector changes the low 128 bits of a vector register of an image.
func SetVector(image []byte, n int, lo, hi uint64) { linux.SetVector(image, n, lo, hi) }

// MoveLastFPUInsn makes an image tell to as the address of the last x87 instruction where it tells from, whole or its lower half,
// and reports whether it did.
func MoveLastFPUInsn(image []byte, from, to arch.Addr) bool {
	return linux.MoveLastFPUInsn(image, from, to)
}

// EmptyX87 empties the x87 stack of an image, as functions expect it, and reports
// whether it was not empty.
func EmptyX87(image []byte) (changed bool) { return linux.EmptyX87(image) }

// BreakAt sets debug registers of a stopped thread so that it traps in front of the
// instruction at each of ats.
func BreakAt(tid int, ats ...arch.Addr) error { return linux.BreakAt(tid, ats...) }

// BreakNowhere undoes BreakAt.
func BreakNowhere(tid int) error { return linux.BreakNowhere(tid) }

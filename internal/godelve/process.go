package godelve

import (
	"errors"

	"github.com/go-delve/delve/pkg/dwarf/op"
	"github.com/go-delve/delve/pkg/proc"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols/walk"
)

// Thread is a thread of the target that stands still.
type Thread interface {
	arch.Regs
	arch.Memory
	TID() int
	ThreadPointer() arch.Addr
}

// stop is what of a thread the evaluation may know beside memory.
type stop struct {
	TID            int
	PC, SP, FP, TP uint64
	Names          []string // of all registers
	Values         []uint64
}

func stopOf(t Thread) stop {
	s := stop{TID: t.TID(), PC: uint64(t.IP()), SP: uint64(t.SP()), FP: uint64(t.FP()), TP: uint64(t.ThreadPointer())}
	for _, name := range t.Names() {
		v, _ := t.Get(name)
		if name == host.Roles.IP {
			v = s.PC
		}
		s.Names, s.Values = append(s.Names, name), append(s.Values, v)
	}
	return s
}

// errReadOnly is what Delve gets where it would change the target.
var errReadOnly = errors.New("expressions change nothing")

// process is a process of ours as Delve sees it: one thread that has stopped, and memory. What is not implemented is never asked for, since nothing continues.
type process struct {
	proc.ProcessInternal
	bi     *proc.BinaryInfo
	entry  uint64
	breaks proc.BreakpointMap
	thread *thread
}

func newProcess(bi *proc.BinaryInfo, entry arch.Addr) *process {
	p := &process{bi: bi, entry: uint64(entry), breaks: proc.NewBreakpointMap()}
	p.thread = &thread{process: p}
	return p
}

func (p *process) BinInfo() *proc.BinaryInfo              { return p.bi }
func (p *process) EntryPoint() (uint64, error)            { return p.entry, nil }
func (p *process) ThreadList() []proc.Thread              { return []proc.Thread{p.thread} }
func (p *process) Breakpoints() *proc.BreakpointMap       { return &p.breaks }
func (p *process) Memory() proc.MemoryReadWriter          { return p.thread }
func (p *process) Valid() (bool, error)                   { return true, nil }
func (p *process) WriteBreakpoint(*proc.Breakpoint) error { return errReadOnly }
func (p *process) EraseBreakpoint(*proc.Breakpoint) error { return errReadOnly }
func (p *process) SupportsBPF() bool                      { return false }
func (p *process) StartCallInjection() (func(), error)    { return nil, errReadOnly }

func (p *process) FindThread(id int) (proc.Thread, bool) { return p.thread, id == p.thread.ThreadID() }

// thread is the thread that has stopped, and its memory.
type thread struct {
	proc.Thread
	*process
	common proc.CommonThread
	of     *stop
	pages  *walk.Pages // its memory, while an expression is evaluated
}

// errGone is what Delve gets while no thread stands still for it.
var errGone = errors.New("no thread has stopped")

// ReadMemory implements proc.MemoryReader.
func (t *thread) ReadMemory(buf []byte, addr uint64) (int, error) {
	if t.pages == nil {
		return 0, errGone
	}
	if err := t.pages.ReadMemory(arch.Addr(addr), buf); err != nil {
		return 0, err
	}
	return len(buf), nil
}

// WriteMemory implements proc.MemoryReadWriter.
func (t *thread) WriteMemory(uint64, []byte) (int, error) { return 0, errReadOnly }

func (t *thread) Breakpoint() *proc.BreakpointState     { return &proc.BreakpointState{} }
func (t *thread) BinInfo() *proc.BinaryInfo             { return t.bi }
func (t *thread) ProcessMemory() proc.MemoryReadWriter  { return t }
func (t *thread) SetCurrentBreakpoint(bool) error       { return nil }
func (t *thread) SoftExc() bool                         { return false }
func (t *thread) Common() *proc.CommonThread            { return &t.common }
func (t *thread) RestoreRegisters(proc.Registers) error { return errReadOnly }

func (t *thread) SetReg(uint64, *op.DwarfRegister) error { return errReadOnly }

func (t *thread) ThreadID() int {
	if t.of == nil {
		return 0
	}
	return t.of.TID
}

func (t *thread) Registers() (proc.Registers, error) {
	if t.of == nil {
		return nil, errGone
	}
	return registers{t.of}, nil
}

// registers are those of a thread, by Delve's names.
type registers struct{ *stop }

func (r registers) PC() uint64            { return r.stop.PC }
func (r registers) SP() uint64            { return r.stop.SP }
func (r registers) BP() uint64            { return r.FP }
func (r registers) LR() uint64            { return 0 }
func (r registers) TLS() uint64           { return r.TP }
func (r registers) GAddr() (uint64, bool) { return 0, false }

func (r registers) Copy() (proc.Registers, error) { return r, nil }

// Slice implements proc.Registers.
func (r registers) Slice(bool) (all []proc.Register, err error) {
	for i, name := range r.Names {
		all = proc.AppendUint64Register(all, name, r.Values[i])
	}
	return all, nil
}

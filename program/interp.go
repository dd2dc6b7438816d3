package program

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch"
)

// Env is what a program runs on in the tracer.
type Env struct {
	// Regs are the registers at the hit; arch.Regs is one.
	Regs interface {
		Get(name string) (uint64, bool)
	}
	// Memory is the target's; arch.Memory is one.
	Memory interface {
		ReadMemory(at arch.Addr, p []byte) error
	}
	// Maps are the maps' shared memory, Map.Len bytes each; those of Program.Maps, in their order.
	Maps [][]uint64
	// Time is what the helper Time returns; nil for always 0.
	Time func() uint64
	// Thread is what the helper Thread returns.
	Thread uint64
	// Processor is what the helper Processor returns; nil for always 0.
	Processor func() uint64
}

// Run interprets the program at one hit. It may run concurrently with itself, with compiled code that uses
// the same maps, and with their readers. The error is one of e; then nothing has been done.
func (c *Checked) Run(e *Env) error {
	_, err := c.Decide(e)
	return err
}

// Decide is Run of a program that decides. It returns whether the handler is to run.
func (c *Checked) Decide(e *Env) (chosen bool, err error) {
	m, err := c.newMachine(e)
	if err != nil {
		return false, err
	}
	for at := 0; at >= 0; {
		at = m.step(at)
	}
	return c.Decides && m.regs[asm.R0] != 0, nil
}

// newMachine checks that e is what c needs.
func (c *Checked) newMachine(e *Env) (*machine, error) {
	m := &machine{Checked: c, env: e, ctx: make([]uint64, len(c.Regs))}
	for i, name := range c.Regs {
		v, ok := e.Regs.Get(name)
		if !ok {
			return nil, fmt.Errorf("program %s: no register %s", c.Name, name)
		}
		m.ctx[i] = v
	}
	if len(e.Maps) != len(c.Maps) {
		return nil, fmt.Errorf("program %s: %d maps for %d", c.Name, len(e.Maps), len(c.Maps))
	}
	for i, d := range c.Maps {
		if len(e.Maps[i]) < d.Len()/8 {
			return nil, fmt.Errorf("program %s: map %d has %d bytes of %d", c.Name, i, 8*len(e.Maps[i]), d.Len())
		}
	}
	return m, nil
}

// machine is one run. Registers that hold addresses have no value here: Check knows
// where they point. A register that holds a record or 0 is 1 or 0.
type machine struct {
	*Checked
	env    *Env
	regs   [11]uint64
	ctx    []uint64
	stack  [StackSize]byte
	record []byte // payload of the record that is held
	place  reserved
}

// step performs the instruction at at and returns the index of the next one, or -1.
func (m *machine) step(at int) int {
	ins := &m.Code[at]
	dst := &m.regs[ins.Dst]
	switch class := ins.OpCode.Class(); {
	case class.IsALU():
		*dst = alu(ins.Instruction, *dst, m.operand(ins))
	case class == asm.LdClass:
		*dst = uint64(ins.Constant)
	case class == asm.LdXClass:
		*dst = m.load(ins)
	case class == asm.StClass:
		m.store(ins, uint64(ins.Constant))
	case class == asm.StXClass:
		m.storeX(ins)
	case ins.OpCode.JumpOp() == asm.Exit:
		return -1
	case ins.Call != nil:
		m.regs[asm.R0] = m.call(ins.Call)
	case taken(ins.Instruction, *dst, m.operand(ins)):
		return ins.Target
	}
	return at + 1
}

// operand is the second one of arithmetic and comparisons.
func (m *machine) operand(ins *Insn) uint64 {
	if ins.OpCode.Source() == asm.RegSource {
		return m.regs[ins.Src]
	}
	return uint64(ins.Constant)
}

// bytes is the memory that ins accesses.
func (m *machine) bytes(mem Region, off, size int) []byte {
	if mem == InStack {
		return m.stack[off+StackSize:][:size]
	}
	return m.record[off:][:size]
}

func (m *machine) load(ins *Insn) uint64 {
	size := ins.OpCode.Size().Sizeof()
	var v uint64
	if ins.Mem == InContext {
		v = truncate(m.ctx[ins.Off/8]>>(8*(ins.Off%8)), size)
	} else {
		v = uintOf(m.bytes(ins.Mem, ins.Off, size))
	}
	if ins.OpCode.Mode() == asm.MemSXMode {
		v = extend(v, size)
	}
	return v
}

func (m *machine) store(ins *Insn, v uint64) {
	putUint(m.bytes(ins.Mem, ins.Off, ins.OpCode.Size().Sizeof()), v)
}

// storeX stores a register, or performs an atomic operation.
func (m *machine) storeX(ins *Insn) {
	size, src := ins.OpCode.Size().Sizeof(), &m.regs[ins.Src]
	op := ins.OpCode.AtomicOp()
	switch op {
	case asm.InvalidAtomic, storeRelease:
		m.store(ins, *src)
		return
	case loadAcquire:
		m.regs[ins.Dst] = m.load(ins)
		return
	}
	old := m.load(ins)
	switch op {
	case asm.CmpXchg:
		if old == truncate(m.regs[asm.R0], size) {
			m.store(ins, *src)
		}
		m.regs[asm.R0] = old
		return
	case asm.Xchg:
		m.store(ins, *src)
	case asm.AddAtomic, asm.FetchAdd:
		m.store(ins, old+*src)
	case asm.AndAtomic, asm.FetchAnd:
		m.store(ins, old&*src)
	case asm.OrAtomic, asm.FetchOr:
		m.store(ins, old|*src)
	case asm.XorAtomic, asm.FetchXor:
		m.store(ins, old^*src)
	}
	if Fetches(op) {
		*src = old
	}
}

package jit

import (
	"errors"
	"fmt"
	"slices"

	bpf "github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/program"
)

// errRegister is the error of a program that reads a register which can't be read here.
var errRegister = errors.New("register can't be read by a program in the target")

// hwcap2FSGSBase is the bit of AT_HWCAP2 that allows rdfsbase (Linux,
// Documentation/arch/x86/x86_64/fsgs.rst).
const hwcap2FSGSBase = 1 << 1

// Compiler makes machine code of programs. It has no state.
type Compiler struct{}

var _ program.Compiler = Compiler{}

// Compile makes the body of a detour of a checked program. It makes no system call, uses no vector register,
// at most 200 bytes of stack, and skips the red zone. Its fixups are
// for SIGSEGV and SIGBUS.
func (Compiler) Compile(p *program.Checked, target program.Target) (arch.Body, error) {
	if len(target.Maps) != len(p.Maps) {
		return nil, fmt.Errorf("program %s has %d maps, but %d are placed", p.Name, len(p.Maps), len(target.Maps))
	}
	if target.Far != nil && len(target.Far) != len(p.Maps) {
		return nil, fmt.Errorf("program %s has %d maps, but of %d it is told how far they are", p.Name, len(p.Maps), len(target.Far))
	}
	for i, m := range p.Maps {
		if target.Far != nil && target.Far[i] && m.Kind != program.State {
			return nil, fmt.Errorf("program %s: only a state may be anywhere, not a %s", p.Name, m.Kind)
		}
	}
	if p.Decides && target.Below > 0 {
		return nil, fmt.Errorf("program %s decides, but not at the beginning of a hit", p.Name)
	}
	own := *p
	own.Code = plain(p.Code)
	c := &compiler{Checked: &own, env: target}
	c.dead = target.Dead.Regs &^ (1 << sp)
	// The choice of registers decides the code, and the code decides the choice. All of
	// these sets only grow.
	for {
		m, again := c.generate()
		if c.err != nil {
			return nil, fmt.Errorf("program %s: %w", p.Name, c.err)
		}
		if !again {
			return compiled{m}, nil
		}
	}
}

var (
	loadAcquire  = bpf.LoadAcquire(0, 0, bpf.DWord, 0).OpCode.AtomicOp()
	storeRelease = bpf.StoreRelease(0, 0, bpf.DWord, 0).OpCode.AtomicOp()
)

// plain makes ordinary loads and stores of those that are ordered, since here all are (SDM vol. 3A
// §9.2.2).
func plain(code []program.Insn) []program.Insn {
	code = slices.Clone(code)
	for n := range code {
		i := &code[n]
		switch size := i.OpCode.Size(); i.OpCode.AtomicOp() {
		case loadAcquire:
			i.OpCode = bpf.LoadMemOp(size)
		case storeRelease:
			i.OpCode = bpf.StoreMemOp(size)
		}
	}
	return code
}

// compiled is a compiled program.
type compiled struct{ *machine }

// Assemble places the code at at.
func (b compiled) Assemble(at arch.Addr) (arch.BodyCode, error) { return b.assemble(at) }

// Scratch registers. They are free for anything between two of the program's instructions.
const (
	t0 xreg = ax // the saved flags go here, too
	t1 xreg = cx // also counts of shifts
	t2 xreg = dx // also high halves
)

// compiler is the state of one compilation.
type compiler struct {
	*program.Checked
	env  program.Target
	dead uint16
	err  error

	// What earlier attempts found out.
	needed  mask   // registers of the program that need one of the machine
	scratch uint16 // scratch registers that are used

	// One attempt.
	*machine
	flow
	phys      [bpfRegs]xreg
	record    xreg   // the payload of the record that is held
	clobbered uint16 // what the body changes
	touched   uint16 // scratch registers that this attempt uses
	more      mask   // registers of the program that need one of the machine after all
	frame     frame
	places    []label // of the instructions
	exit      label
	chosen    label // the exit of hits that the handler is to see
	bail      label
	end       label    // of the body
	cold      []func() // code that is seldom run
}

// generate makes one attempt. again tells that it is worthless, since it
// needed more than was thought.
func (c *compiler) generate() (m *machine, again bool) {
	c.allocate()
	c.flow = analyze(c.Checked, c.contextValue, c.record)
	c.touched, c.more = 0, 0
	for n := range c.Code {
		c.more |= c.out[n]
	}
	if c.learn() {
		return nil, true
	}
	for far := map[int]bool{}; ; {
		c.machine = &machine{far: far}
		c.body()
		switch {
		case c.err != nil:
			return nil, false
		case c.learn():
			return nil, true
		case c.link():
			return c.machine, false
		}
	}
}

// learn keeps the findings of this attempt, and reports whether there were any.
func (c *compiler) learn() bool {
	scratch, needed := c.scratch|c.touched, c.needed|c.more
	news := scratch != c.scratch || needed != c.needed
	c.scratch, c.needed = scratch, needed
	return news
}

// body generates everything.
func (c *compiler) body() {
	c.places = make([]label, len(c.Code)+1)
	for n := range c.places {
		c.places[n] = c.newLabel()
	}
	c.exit, c.bail, c.end, c.cold = c.newLabel(), c.newLabel(), c.newLabel(), nil
	c.chosen = c.newLabel()
	c.prologue()
	last := len(c.Code) - 1
	for last > 0 && !c.in[last].reached {
		last--
	}
	for n, i := range c.Code[:last+1] {
		c.mark(c.places[n])
		if !c.in[n].reached || c.skipped(n) {
			continue
		}
		switch {
		case i.OpCode.JumpOp() != bpf.Exit:
			c.insn(n, i)
		case c.Decides:
			c.decide(n)
		case n != last:
			c.jump(c.exit)
		}
	}
	if c.Decides {
		c.later(c.choose)
	}
	if len(c.cold) > 0 {
		c.jump(c.exit)
	}
	for len(c.cold) > 0 {
		next := c.cold[0]
		c.cold = c.cold[1:]
		next()
	}
	c.mark(c.exit)
	c.restore(false)
	c.mark(c.end)
}

// decide ends the program at its n-th instruction, as r0 says.
func (c *compiler) decide(n int) {
	if v := c.in[n].r[bpf.R0]; v.kind == valueConst {
		if v.n == 0 {
			c.jump(c.exit)
		} else {
			c.jump(c.chosen)
		}
		return
	}
	x := c.reg(n, bpf.R0, t0)
	c.ins(8, 0x85, x, inReg(x)) // test
	c.jumpIf(amd64.CondNE, c.chosen)
	c.jump(c.exit)
}

// choose calls the tracer, which sees all registers as they were.
func (c *compiler) choose() {
	c.mark(c.chosen)
	c.restore(true)
	c.machine.chosen = append(c.machine.chosen, len(c.code))
	c.bytes(amd64.Arch{}.Breakpoint()...)
	c.jump(c.end)
}

// insn generates the n-th instruction.
func (c *compiler) insn(n int, i program.Insn) {
	switch i.OpCode.Class() {
	case bpf.ALUClass:
		c.arithmetic(n, i, 4)
	case bpf.ALU64Class:
		c.arithmetic(n, i, 8)
	case bpf.LdClass:
		c.constant(c.phys[i.Dst], i.Constant)
	case bpf.LdXClass:
		c.loadMem(n, i)
	case bpf.StClass, bpf.StXClass:
		c.storeMem(n, i)
	case bpf.JumpClass, bpf.Jump32Class:
		switch {
		case i.Call != nil:
			c.call(n, i)
		case i.OpCode.JumpOp() == bpf.Ja:
			c.jump(c.places[i.Target])
		default:
			c.compare(n, i)
		}
	}
}

// later generates code that is seldom run.
func (c *compiler) later(code func()) { c.cold = append(c.cold, code) }

// use notes that a scratch register is used.
func (c *compiler) use(x xreg) xreg {
	c.touched |= 1 << x
	return x
}

// reg is the register that r's value is in in front of the n-th instruction, which is
// scratch if it is in none yet.
func (c *compiler) reg(n int, r bpf.Register, scratch xreg) xreg {
	switch v := c.in[n].r[r]; v.kind {
	case valueConst:
		c.constant(c.use(scratch), v.n)
		return scratch
	case valueIn:
		return v.x
	}
	return c.phys[r]
}

// own is the register that r has got, with r's value in it.
func (c *compiler) own(n int, r bpf.Register) xreg {
	x := c.phys[r]
	if v := c.in[n].r[r]; v.kind == valueConst {
		c.constant(x, v.n)
	} else {
		c.move(x, c.reg(n, r, x))
	}
	return x
}

// small is r's value if it is known and fits into an instruction.
func (c *compiler) small(n int, r bpf.Register) (int32, bool) {
	v := c.in[n].r[r]
	return int32(v.n), v.kind == valueConst && v.n == int64(int32(v.n))
}

// wanted tells that r is read behind the n-th instruction.
func (c *compiler) wanted(n int, r bpf.Register) bool { return c.out[n].has(r) }

// allocate gives registers of the machine to those of the program that need one, and to the
// record.
func (c *compiler) allocate() {
	seen := c.seen()
	// The shortest encodings first; rbp, the frame pointer, last.
	free := []xreg{cx, dx, ax, si, di, bx, 8, 9, 10, 11, 12, 13, 15, 14, bp}
	free = slices.DeleteFunc(free, func(x xreg) bool { return c.scratch>>x&1 != 0 })
	c.clobbered = c.scratch
	if !c.env.Dead.Flags || c.Decides {
		c.clobbered |= 1 << ax
	}
	cost := func(x xreg) int { return int(^c.clobbered>>x&1) * (2*int(^c.dead>>x&1) + 3*int(seen>>x&1)) }
	slices.SortStableFunc(free, func(a, b xreg) int { return cost(a) - cost(b) })
	take := func() (x xreg) {
		x, free = free[0], free[1:]
		c.clobbered |= 1 << x
		return x
	}
	c.record = noX
	if slices.ContainsFunc(c.Code, func(i program.Insn) bool { return i.Call != nil && i.Call.Func == program.RingReserve }) {
		c.record = take()
	}
	for r := range bpf.Register(bpfRegs) {
		if c.phys[r] = noX; c.needed.has(r) {
			c.phys[r] = take()
		}
	}
	c.frame = c.layout(seen)
}

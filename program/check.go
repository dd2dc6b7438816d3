package program

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// ErrUnsafe is matched by the errors of Check: the program could do harm, or is none.
var ErrUnsafe = errors.New("the program is not safe")

// Check checks that p is safe. It must end, read nothing that was not written before,
// write only to its stack and the record that it holds, and call helpers with arguments
// that they take. The error matches ErrUnsafe and names the first instruction that is
// wrong.
func Check(p *Program) (*Checked, error) {
	if err := checkLimits(p); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnsafe, p.Name, err)
	}
	c := &Checked{Program: p, Code: make([]Insn, len(p.Insns))}
	for i, ins := range p.Insns {
		c.Code[i] = Insn{Instruction: ins, Target: -1}
	}
	k := &checker{Checked: c, states: make([]*state, len(c.Code))}
	at, err := k.run()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: instruction %d (%s): %w", ErrUnsafe, p.Name, at, text(p.Insns[at]), err)
	}
	c.findUnused()
	return c, nil
}

// text is an instruction in a message. asm panics at nothing that has an opcode of its own.
func text(ins asm.Instruction) string {
	if ins.OpCode == asm.InvalidOpCode {
		return "no opcode"
	}
	return fmt.Sprintf("%v", ins)
}

func checkLimits(p *Program) error {
	switch {
	case len(p.Insns) == 0:
		return errors.New("no instructions")
	case len(p.Insns) > MaxInsns:
		return fmt.Errorf("%d instructions, more than %d", len(p.Insns), MaxInsns)
	case len(p.Maps) > MaxMaps:
		return fmt.Errorf("%d maps, more than %d", len(p.Maps), MaxMaps)
	case len(p.Regs) > MaxRegs:
		return fmt.Errorf("%d registers in the context, more than %d", len(p.Regs), MaxRegs)
	}
	for i, m := range p.Maps {
		if err := m.Check(); err != nil {
			return fmt.Errorf("map %d: %w", i, err)
		}
	}
	if i := p.State(); i >= 0 && (&Program{Maps: p.Maps[i+1:]}).State() >= 0 {
		return errors.New("more than one state")
	}
	return nil
}

// checker goes through a program once, in its order: no jump leads back, so the state in
// front of an instruction is complete when its turn comes.
type checker struct {
	*Checked
	states []*state // in front of each instruction; nil: nothing leads there so far
}

// run returns the index of the instruction that the error is about.
func (k *checker) run() (int, error) {
	if at, err := k.resolve(); err != nil {
		return at, err
	}
	first := &state{}
	first.regs[asm.R1] = value{kind: pointer, mem: InContext}
	first.regs[asm.R10] = value{kind: pointer, mem: InStack}
	k.states[0] = first
	for i := range k.Code {
		s := k.states[i]
		if s == nil {
			return i, errors.New("it is never reached")
		}
		k.states[i] = nil
		if err := k.step(i, s); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// resolve finds where the jumps lead.
func (k *checker) resolve() (int, error) {
	labels := make(map[string]int)
	raw := make(map[int]int) // raw offset to index
	offset := 0
	offsets := make([]int, len(k.Code))
	for i := range k.Code {
		if name := k.Code[i].Symbol(); name != "" {
			if _, twice := labels[name]; twice {
				return i, fmt.Errorf("label %s is there twice", name)
			}
			labels[name] = i
		}
		raw[offset], offsets[i] = i, offset
		offset += int(k.Code[i].Width())
	}
	for i := range k.Code {
		ins := &k.Code[i]
		if !branches(ins.OpCode) {
			continue
		}
		to, ok := labels[ins.Reference()]
		if ins.Reference() == "" {
			to, ok = raw[offsets[i]+1+rawJump(ins.Instruction)]
		}
		switch {
		case !ok:
			return i, errors.New("it jumps to where no instruction begins")
		case to <= i:
			return i, errors.New("it jumps back")
		}
		ins.Target = to
	}
	return 0, nil
}

// branches reports whether op is a jump with a target.
func branches(op asm.OpCode) bool {
	j := op.JumpOp()
	return op.Class().IsJump() && j != asm.InvalidJumpOp && j != asm.Call && j != asm.Exit
}

// rawJump is the distance of a jump without a label.
func rawJump(ins asm.Instruction) int {
	if ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja {
		return int(ins.Constant)
	}
	return int(ins.Offset)
}

// step checks instruction i in state s and passes the state on to the instructions that
// may follow.
func (k *checker) step(i int, s *state) error {
	ins := &k.Code[i]
	if ins.Dst > asm.R10 || ins.Src > asm.R10 {
		return errors.New("no such register")
	}
	if !formed(ins.OpCode) {
		return errors.New("no such operation")
	}
	var err error
	switch class := ins.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		err = s.alu(ins)
	case asm.LdClass:
		err = k.loadImm(ins, s)
	case asm.LdXClass, asm.StClass, asm.StXClass:
		err = k.access(ins, s)
	default:
		return k.jump(i, s)
	}
	if err != nil {
		return err
	}
	return k.flow(i+1, s)
}

// formed reports whether all bits of op have a meaning in its class.
func formed(op asm.OpCode) bool {
	switch class := op.Class(); {
	case class.IsALU():
		return op <= 0x3fff
	case class == asm.StXClass && op.Mode() == asm.AtomicMode:
		return op <= 0x1ffff
	}
	return op <= 0xff
}

// flow hands s on to instruction i, which s may not be used for any more after that.
func (k *checker) flow(i int, s *state) error {
	if i >= len(k.Code) {
		return errors.New("the program goes on behind its end")
	}
	if k.states[i] == nil {
		k.states[i] = s
		return nil
	}
	return k.states[i].merge(s)
}

func (k *checker) loadImm(ins *Insn, s *state) error {
	if !ins.OpCode.IsDWordLoad() {
		return errors.New("no such operation")
	}
	switch ins.Src {
	case 0:
		return s.set(ins, value{kind: number, known: true, n: uint64(ins.Constant)})
	case asm.PseudoMapFD:
		m := int(uint32(ins.Constant))
		if m >= len(k.Maps) {
			return fmt.Errorf("there is no map %d", m)
		}
		return s.set(ins, value{kind: pointer, mem: InMap, off: m})
	}
	return errors.New("it loads neither a number nor a map")
}

package program

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
)

// valueKind is a kind of knowledge about a register.
type valueKind uint8

const (
	unset       valueKind = iota // nothing has been written, or different things
	number                       // n, if known
	pointer                      // off in mem
	maybeRecord                  // what RingReserve has returned, not compared with 0 yet
)

type value struct {
	kind  valueKind
	known bool
	n     uint64
	mem   Region
	off   int
}

// holding is what a program does about a record.
type holding uint8

const (
	noRecord holding = iota
	askedRecord
	hasRecord
)

// state is the knowledge in front of an instruction.
type state struct {
	regs  [11]value
	stack uint64 // bit n: byte n-StackSize from r10 has been written
	rec   holding
	size  int // of the record's payload
}

// merge reduces s to the knowledge that holds in both s and o.
func (s *state) merge(o *state) error {
	for r := range s.regs {
		s.regs[r] = common(s.regs[r], o.regs[r])
	}
	s.stack &= o.stack
	if s.rec != o.rec || s.size != o.size {
		return errors.New("a record is held on one way to the next instruction and not on another")
	}
	return nil
}

func common(a, b value) value {
	switch {
	case a == b:
		return a
	case a.kind == number && b.kind == number:
		return value{kind: number}
	}
	return value{}
}

// get is the value of a register that is read.
func (s *state) get(r asm.Register) (value, error) {
	if s.regs[r].kind == unset {
		return value{}, fmt.Errorf("%s is not set", r)
	}
	return s.regs[r], nil
}

// number is the value of a register that must be a number.
func (s *state) number(r asm.Register) (value, error) {
	v, err := s.get(r)
	if err == nil && v.kind != number {
		err = fmt.Errorf("%s is an address", r)
	}
	return v, err
}

// set is what an instruction does to its destination.
func (s *state) set(ins *Insn, v value) error {
	if ins.Dst == asm.R10 {
		return errors.New("r10 can't be changed")
	}
	s.regs[ins.Dst] = v
	if v.kind == pointer {
		ins.Ptr, ins.PtrMem, ins.PtrOff = true, v.mem, v.off
	}
	return nil
}

// alu checks arithmetic. The program never sees an address as a number.
func (s *state) alu(ins *Insn) error {
	if err := checkALU(ins.Instruction); err != nil {
		return err
	}
	op, wide := ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALU64Class
	src := value{kind: number, known: true, n: uint64(ins.Constant)}
	if ins.OpCode.Source() == asm.RegSource {
		var err error
		if src, err = s.get(ins.Src); err != nil {
			return err
		}
	}
	if op == asm.Mov {
		return s.move(ins, src, wide)
	}
	if src.kind != number {
		return fmt.Errorf("%s is an address", ins.Src)
	}
	switch op {
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		return s.set(ins, value{kind: number})
	}
	dst, err := s.get(ins.Dst)
	switch {
	case err != nil:
		return err
	case dst.kind == number:
		return s.set(ins, value{kind: number})
	case dst.kind != pointer || dst.mem == InMap || !wide || !src.known || op != asm.Add && op != asm.Sub:
		return errors.New("that can't be done with an address")
	}
	return s.offset(ins, dst, src, op)
}

func (s *state) move(ins *Insn, src value, wide bool) error {
	if !wide {
		if src.kind != number {
			return errors.New("that can't be done with an address")
		}
		src.n = uint64(uint32(src.n))
	}
	return s.set(ins, src)
}

// offset adds a known number to an address.
func (s *state) offset(ins *Insn, dst, src value, op asm.ALUOp) error {
	n := int64(src.n)
	if n < -MaxRecord || n > MaxRecord {
		return fmt.Errorf("%d is too far away", n)
	}
	if op == asm.Sub {
		n = -n
	}
	dst.off += int(n)
	if dst.off < -MaxRecord || dst.off > MaxRecord {
		return errors.New("the address is too far away")
	}
	return s.set(ins, dst)
}

// checkALU checks the form of an arithmetic instruction.
func checkALU(ins asm.Instruction) error {
	op, wide := ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALU64Class
	imm := ins.OpCode.Source() == asm.ImmSource
	if ins.Offset != 0 || ins.Constant != int64(int32(ins.Constant)) {
		return errors.New("an operand is out of range")
	}
	switch op {
	case asm.Add, asm.Sub, asm.Mul, asm.Or, asm.And, asm.Xor, asm.Mov:
	case asm.Neg:
		if !imm {
			return errors.New("no such operation")
		}
	case asm.Div, asm.SDiv, asm.Mod, asm.SMod:
		if imm && ins.Constant == 0 {
			return errors.New("division by zero")
		}
	case asm.LSh, asm.RSh, asm.ArSh:
		if bits := map[bool]int64{true: 64, false: 32}[wide]; imm && (ins.Constant < 0 || ins.Constant >= bits) {
			return fmt.Errorf("a shift by %d bits", ins.Constant)
		}
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		if imm || op == asm.MovSX32 && !wide {
			return errors.New("no such operation")
		}
	case asm.Swap:
		if n := ins.Constant; n != 16 && n != 32 && n != 64 || wide && ins.OpCode.Endianness() == asm.BE {
			return errors.New("no such operation")
		}
	default:
		return errors.New("no such operation")
	}
	return nil
}

// stackBits are size bytes at off of the stack.
func stackBits(off, size int) uint64 {
	if size >= StackSize {
		return math.MaxUint64
	}
	return (1<<size - 1) << (off + StackSize)
}

package program

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// jump checks jumps, calls and the end.
func (k *checker) jump(i int, s *state) error {
	ins := &k.Code[i]
	switch op := ins.OpCode.JumpOp(); op {
	case asm.Exit:
		if s.rec != noRecord {
			return errors.New("the program ends with a record that is not committed")
		}
		return k.decision(s)
	case asm.Call:
		if err := k.call(ins, s); err != nil {
			return err
		}
		return k.flow(i+1, s)
	case asm.Ja:
		if ins.OpCode.Source() != asm.ImmSource {
			return errors.New("no such operation")
		}
		return k.flow(ins.Target, s)
	case asm.JEq, asm.JGT, asm.JGE, asm.JSet, asm.JNE, asm.JSGT, asm.JSGE, asm.JLT, asm.JLE, asm.JSLT, asm.JSLE:
		return k.branch(i, s)
	}
	return errors.New("no such operation")
}

// decision checks what a program that decides ends with.
func (k *checker) decision(s *state) error {
	if !k.Decides {
		return nil
	}
	if _, err := s.number(asm.R0); err != nil {
		return fmt.Errorf("it decides whether the handler runs: %w", err)
	}
	return nil
}

// branch checks a conditional jump.
func (k *checker) branch(i int, s *state) error {
	ins := &k.Code[i]
	dst, err := s.get(ins.Dst)
	if err != nil {
		return err
	}
	imm := ins.OpCode.Source() == asm.ImmSource
	if imm && ins.Constant != int64(int32(ins.Constant)) {
		return errors.New("an operand is out of range")
	}
	jumps, falls := *s, *s
	op := ins.OpCode.JumpOp()
	switch {
	case dst.kind == maybeRecord && imm && ins.Constant == 0 && ins.OpCode.Class() == asm.JumpClass && (op == asm.JEq || op == asm.JNE):
		jumps.granted(op == asm.JNE)
		falls.granted(op == asm.JEq)
	case dst.kind != number:
		return fmt.Errorf("%s is an address", ins.Dst)
	case !imm:
		if _, err := s.number(ins.Src); err != nil {
			return err
		}
	}
	if err := k.flow(ins.Target, &jumps); err != nil {
		return err
	}
	return k.flow(i+1, &falls)
}

// granted tells s whether the record that was asked for is there.
func (s *state) granted(yes bool) {
	v := value{kind: number, known: true}
	s.rec = noRecord
	if yes {
		v = value{kind: pointer, mem: InRecord}
		s.rec = hasRecord
	} else {
		s.size = 0
	}
	for r := range s.regs {
		if s.regs[r].kind == maybeRecord {
			s.regs[r] = v
		}
	}
}

// call checks a call of a helper.
func (k *checker) call(ins *Insn, s *state) error {
	fn := asm.BuiltinFunc(ins.Constant)
	h, ok := HelperFor(fn)
	if !ok || int64(fn) != ins.Constant || ins.Src != 0 || ins.OpCode.Source() != asm.ImmSource {
		return errors.New("there is no such helper")
	}
	c := &HelperCall{Func: fn, Helper: h, Map: -1, Lost: -1}
	for n, t := range h.Args {
		r := asm.R1 + asm.Register(n)
		if err := k.argument(c, s, r, t); err != nil {
			return fmt.Errorf("%s, argument %d: %w", h.Name, n+1, err)
		}
	}
	if c.Dst != NoRegion {
		if err := k.destination(c, s); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	ins.Call = c
	return k.effect(c, s)
}

var mapKinds = map[ArgType]MapKind{ArgCounter: Counter, ArgLog2: Log2, ArgLinear: Linear, ArgRing: Ring, ArgState: State}

func (k *checker) argument(c *HelperCall, s *state, r asm.Register, t ArgType) error {
	v, err := s.get(r)
	if err != nil {
		return err
	}
	switch t {
	case ArgValue:
		_, err = s.number(r)
		return err
	case ArgSize:
		if v.kind != number || !v.known {
			return errors.New("the size must be a constant")
		}
		if v.n < 1 || v.n > MaxRecord {
			return fmt.Errorf("a size of %d: want 1 to %d", int64(v.n), MaxRecord)
		}
		c.Size = int(v.n)
		return nil
	case ArgCell:
		if v.kind != number || !v.known {
			return errors.New("the cell must be a constant")
		}
		if n := k.Maps[c.Map].Cells; v.n >= uint64(n) {
			return fmt.Errorf("there is no cell %d of %d", v.n, n)
		}
		c.Cell = int(v.n)
		return nil
	case ArgDst:
		if v.kind != pointer || v.mem != InStack && v.mem != InRecord {
			return errors.New("want an address in the stack or the record")
		}
		c.Dst, c.Off = v.mem, v.off
		return nil
	case ArgRecord:
		if v != (value{kind: pointer, mem: InRecord}) {
			return errors.New("want the address of the record")
		}
		return nil
	}
	return k.mapArgument(c, v, t)
}

func (k *checker) mapArgument(c *HelperCall, v value, t ArgType) error {
	want := mapKinds[t]
	if v.kind != pointer || v.mem != InMap || k.Maps[v.off].Kind != want {
		return fmt.Errorf("want a %s", want)
	}
	if c.Map < 0 {
		c.Map = v.off
	} else {
		c.Lost = v.off
	}
	return nil
}

// destination checks where a helper writes to. Only Read always writes all of it.
func (k *checker) destination(c *HelperCall, s *state) error {
	before := s.stack
	err := k.within(s, c.Dst, c.Off, c.Size, true)
	if c.Func != Read {
		s.stack = before
	}
	return err
}

// effect is the knowledge after a call.
func (k *checker) effect(c *HelperCall, s *state) error {
	for r := asm.R0; r <= asm.R5; r++ {
		s.regs[r] = value{}
	}
	if c.Result {
		s.regs[asm.R0] = value{kind: number}
	}
	switch c.Func {
	case RingReserve:
		if s.rec != noRecord {
			return errors.New("the program has a record already")
		}
		if ring := k.Maps[c.Map]; RecordLen(c.Size) > ring.Size/4 {
			return fmt.Errorf("a record of %d bytes is more than a quarter of the ring of %d", c.Size, ring.Size)
		}
		s.rec, s.size = askedRecord, c.Size
		s.regs[asm.R0] = value{kind: maybeRecord}
	case RingCommit:
		s.rec, s.size = noRecord, 0
		for r := range s.regs {
			if s.regs[r].kind == pointer && s.regs[r].mem == InRecord {
				s.regs[r] = value{}
			}
		}
	}
	return nil
}

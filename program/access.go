package program

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// The operations that asm has no exported names for.
var (
	loadAcquire  = asm.LoadAcquire(0, 0, asm.DWord, 0).OpCode.AtomicOp()
	storeRelease = asm.StoreRelease(0, 0, asm.DWord, 0).OpCode.AtomicOp()
)

// access checks a load or store.
func (k *checker) access(ins *Insn, s *state) error {
	mode, class := ins.OpCode.Mode(), ins.OpCode.Class()
	size := ins.OpCode.Size().Sizeof()
	atomic := class == asm.StXClass && mode == asm.AtomicMode
	switch {
	case class == asm.LdXClass && (mode == asm.MemMode || mode == asm.MemSXMode && size < 8),
		atomic && ins.OpCode.AtomicOp() == loadAcquire:
		if err := k.locate(ins, s, ins.Src, size, false); err != nil {
			return err
		}
		return s.set(ins, value{kind: number})
	case class == asm.StClass && mode == asm.MemMode:
		if ins.Constant != int64(int32(ins.Constant)) {
			return errors.New("an operand is out of range")
		}
	case class == asm.StXClass && mode == asm.MemMode, atomic && ins.OpCode.AtomicOp() == storeRelease:
		if _, err := s.number(ins.Src); err != nil {
			return err
		}
	case atomic:
		return k.atomic(ins, s, size)
	default:
		return errors.New("no such operation")
	}
	return k.locate(ins, s, ins.Dst, size, true)
}

// atomic checks the instructions that read and write.
func (k *checker) atomic(ins *Insn, s *state, size int) error {
	op := ins.OpCode.AtomicOp()
	switch op {
	case asm.AddAtomic, asm.AndAtomic, asm.OrAtomic, asm.XorAtomic,
		asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg, asm.CmpXchg:
	default:
		return errors.New("no such operation")
	}
	if size < 4 {
		return errors.New("no such operation")
	}
	if _, err := s.number(ins.Src); err != nil {
		return err
	}
	if op == asm.CmpXchg {
		if _, err := s.number(asm.R0); err != nil {
			return err
		}
	}
	if err := k.locate(ins, s, ins.Dst, size, false); err != nil {
		return err
	}
	if err := k.locate(ins, s, ins.Dst, size, true); err != nil {
		return err
	}
	if ins.Off%size != 0 {
		return errors.New("an atomic access must be aligned")
	}
	if op == asm.CmpXchg {
		s.regs[asm.R0] = value{kind: number}
	} else if Fetches(op) {
		s.regs[ins.Src] = value{kind: number}
	}
	return nil
}

// Fetches reports whether op leaves the old value in its source register. (CmpXchg leaves it
// in r0.)
func Fetches(op asm.AtomicOp) bool {
	switch op {
	case asm.FetchAdd, asm.FetchAnd, asm.FetchOr, asm.FetchXor, asm.Xchg:
		return true
	}
	return false
}

// locate finds the memory that is accessed through base, and whether that is allowed.
func (k *checker) locate(ins *Insn, s *state, base asm.Register, size int, write bool) error {
	v, err := s.get(base)
	if err != nil {
		return err
	}
	if v.kind == maybeRecord {
		return fmt.Errorf("%s may be 0: ring_reserve's result has not been compared", base)
	}
	if v.kind != pointer {
		return fmt.Errorf("%s is not an address of the program's; target memory is read by helpers", base)
	}
	ins.Mem, ins.Off = v.mem, v.off+int(ins.Offset)
	return k.within(s, ins.Mem, ins.Off, size, write)
}

// within checks one access to memory.
func (k *checker) within(s *state, mem Region, off, size int, write bool) error {
	outside := fmt.Errorf("%d bytes at %d are outside of %s", size, off, mem)
	switch mem {
	case InContext:
		switch {
		case write:
			return errors.New("the context can't be written")
		case off < 0 || off+size > 8*len(k.Regs):
			return outside
		case off%size != 0:
			return errors.New("an access to the context must be aligned")
		}
		return nil
	case InStack:
		if off < -StackSize || off+size > 0 {
			return outside
		}
		bits := stackBits(off, size)
		if write {
			s.stack |= bits
		} else if s.stack&bits != bits {
			return fmt.Errorf("%d bytes of the stack at %d have not been written", size, off)
		}
		return nil
	case InRecord:
		if off < 0 || off+size > s.size {
			return outside
		}
		return nil
	}
	return fmt.Errorf("%s can't be accessed", mem)
}

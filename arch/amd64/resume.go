package amd64

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// resume puts right what a copy left that stood at another address than the
// instruction: the instruction pointer, a return address that it pushed, and what
// syscall stores (the kernel's resume_execution, arch/x86/kernel/kprobes/core.c of
// 5.10).
type resume struct {
	class class
	insn  arch.Insn
	link  int // bytes of a pushed return address
}

func newResume(f *form, c class, i arch.Insn) func(arch.Regs, arch.Memory, arch.Addr) error {
	r := resume{class: c, insn: i}
	switch c {
	case call, indirectCall:
		r.link = 8
	case farCall:
		r.link = 4
		if f.rex&rexW != 0 {
			r.link = 8
		} else if f.opsize {
			r.link = 2
		}
	}
	return r.resume
}

func (p resume) resume(regs arch.Regs, m arch.Memory, copyAt arch.Addr) error {
	r, ok := regs.(*Regs)
	if !ok {
		return fmt.Errorf("%w: %T", ErrRegs, regs)
	}
	behind := copyAt + arch.Addr(p.insn.Len())
	switch p.class {
	case farJump, farReturn, indirectJump, ret:
		return nil // the address they went to is absolute
	case farCall, indirectCall, call:
		if err := p.relink(r, m, behind); err != nil {
			return err
		}
		if p.class != call {
			return nil
		}
	case systemCall:
		// syscall leaves its successor in rcx (SDM vol. 2B SYSCALL); with FRED, or
		// after int 0x80, rcx is the program's own.
		if r.Rcx == uint64(behind) {
			r.Rcx = uint64(p.insn.End())
		}
		if r.IP() != behind {
			return nil // sysenter does not say where it came from
		}
	}
	r.SetIP(r.IP() - copyAt + p.insn.Addr)
	return nil
}

// relink corrects the return address on the stack.
func (p resume) relink(r *Regs, m arch.Memory, behind arch.Addr) error {
	var is, want, link [8]byte
	binary.LittleEndian.PutUint64(is[:], uint64(behind))
	binary.LittleEndian.PutUint64(want[:], uint64(p.insn.End()))
	if err := m.ReadMemory(r.SP(), link[:p.link]); err != nil {
		return err
	}
	if [8]byte(link) != cut(is, p.link) {
		return nil
	}
	return m.WriteMemory(r.SP(), want[:p.link])
}

// cut keeps the first n bytes of b.
func cut(b [8]byte, n int) [8]byte {
	clear(b[n:])
	return b
}

package amd64

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// SetCall lays out a call as the System V ABI has it (AMD64 supplement §3.2): six arguments in
// registers, the others on the stack, which is aligned to 16 bytes in front of the return
// address; DF is clear, and al tells that no argument is in a vector register.
func (Arch) SetCall(regs arch.Regs, m arch.Memory, fn, ret arch.Addr, args []uint64) error {
	r, ok := regs.(*Regs)
	if !ok {
		return fmt.Errorf("%w: %T", ErrRegs, regs)
	}
	inRegs, onStack := args, args[:0]
	if len(args) > 6 {
		inRegs, onStack = args[:6], args[6:]
	}
	frame := binary.LittleEndian.AppendUint64(nil, uint64(ret))
	for _, v := range onStack {
		frame = binary.LittleEndian.AppendUint64(frame, v)
	}
	sp := (r.Rsp-RedZone-8*uint64(len(onStack)))&^15 - 8
	if err := m.WriteMemory(arch.Addr(sp), frame); err != nil {
		return fmt.Errorf("writing the call's frame: %w", err)
	}
	for i, v := range inRegs {
		r.SetArg(i, v)
	}
	r.Rip, r.Rsp, r.Rax = uint64(fn), sp, 0
	r.Orig_rax = ^uint64(0) // no system call is restarted on the way
	r.SetNativeMode()
	r.Eflags &^= flagDF | FlagTF
	return nil
}

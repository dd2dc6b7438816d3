package code

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

// SetContext implements arch.Contexts, in the order of Context.
func (a Arch) SetContext(regs arch.Regs, context []byte) (mask uint64, ok bool) {
	r, ok := regs.(*Regs)
	places := []*uint64{&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15, &r.Rdi, &r.Rsi, &r.Rbp, &r.Rbx,
		&r.Rdx, &r.Rax, &r.Rcx, &r.Rsp, &r.Rip, &r.Eflags, &mask}
	if !ok || len(context) < 8*len(places) {
		return 0, false
	}
	for i, p := range places {
		*p = binary.LittleEndian.Uint64(context[8*i:])
	}
	r.Orig_rax = ^uint64(0)
	return mask, true
}

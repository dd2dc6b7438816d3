package code

import (
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

var _ arch.Frames = Arch{}

// Offsets in bytes in struct ucontext, and lengths (asm-generic/ucontext.h, arch/x86/include/asm/sigframe.h,
// arch/x86/include/uapi/asm/sigcontext.h).
const (
	ucFlags, ucStackFlags, ucSegments, ucFpstate = 0, 24, 184, 224

	ucLen, siginfoLen = ucSigmask + 8, 128

	ucFlagsAll    = 7    // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
	noStackChange = 0x10 // a mode that sigaltstack(2) does not know: the kernel leaves the alternate stack alone
)

// Offsets in an XSAVE image, and what the kernel looks for there (SDM vol. 1 §13.4.1;
// arch/x86/include/uapi/asm/sigcontext.h). In what ptrace(2) gives, the components that the kernel saves stand where a
// signal's frame has its magic number.
const (
	fxSoftware, xsaveHeader = 464, 512

	fpMagic1, fpMagic2 = 0x46505853, 0x46505845
	fpAlign            = 64

	tileData    = 1 << 18 // of AMX; the last component, which a thread has only if it has asked for it
	tileDataLen = 8192
)

// SyscallReturn is syscall; ret.
func (Arch) SyscallReturn() []byte { return []byte{0x0f, 0x05, 0xc3} }

// SignalFrame is struct rt_sigframe as the kernel makes it, with the extended state
// above. The alternate stack stays the same.
func (a Arch) SignalFrame(end, restorer arch.Addr, regs arch.Regs, mask uint64, xstate []byte) ([]byte, arch.Addr) {
	fp := signalXstate(xstate)
	if fp == nil {
		return nil, 0
	}
	fpAt := (end - arch.Addr(len(fp))) &^ (fpAlign - 1)
	sp := (fpAt - 8 - ucLen - siginfoLen) &^ 15
	b := make([]byte, int(fpAt-sp)+len(fp))
	binary.LittleEndian.PutUint64(b, uint64(restorer))
	copy(b[fpAt-sp:], fp)

	r, uc := regs.(*Regs), b[8:]
	saved := a.Context(regs, mask)
	n := 8 * gregs
	binary.LittleEndian.PutUint64(uc[ucFlags:], ucFlagsAll)
	binary.LittleEndian.PutUint32(uc[ucStackFlags:], noStackChange)
	copy(uc[ucGregs:], saved[:n])
	binary.LittleEndian.PutUint16(uc[ucSegments:], uint16(r.Cs))
	binary.LittleEndian.PutUint16(uc[ucSegments+6:], uint16(r.Ss))
	binary.LittleEndian.PutUint64(uc[ucFpstate:], uint64(fpAt))
	copy(uc[ucSigmask:], saved[n:])
	return b, sp
}

// InHandler looks for struct rt_sigframe.
func (Arch) InHandler(stack []byte, sig int, restorer arch.Addr) bool {
	const info = 8 + ucLen
	for at := 0; at+info+siginfoLen <= len(stack); at += 8 {
		frame := stack[at:]
		if binary.LittleEndian.Uint64(frame) == uint64(restorer) && binary.LittleEndian.Uint32(frame[info:]) == uint32(sig) &&
			binary.LittleEndian.Uint64(frame[8+ucSigmask:])>>(sig-1)&1 == 0 {
			return true
		}
	}
	return false
}

// signalXstate is x, as ptrace(2) gives it, as a signal's frame has it; nil if x is not that. A size that is more than the
// thread's own would make the kernel take the first 512 bytes only.
func signalXstate(x []byte) []byte {
	if len(x) < xsaveHeader+64 {
		return nil
	}
	features, inUse := binary.LittleEndian.Uint64(x[fxSoftware:]), binary.LittleEndian.Uint64(x[xsaveHeader:])
	if features&tileData != 0 && inUse&tileData == 0 && len(x) > tileDataLen+xsaveHeader+64 {
		features, x = features&^tileData, x[:len(x)-tileDataLen]
	}
	fp := append(make([]byte, 0, len(x)+4), x...)
	clear(fp[fxSoftware:xsaveHeader])
	binary.LittleEndian.PutUint32(fp[fxSoftware:], fpMagic1)
	binary.LittleEndian.PutUint32(fp[fxSoftware+4:], uint32(len(x)+4))
	binary.LittleEndian.PutUint64(fp[fxSoftware+8:], features)
	binary.LittleEndian.PutUint32(fp[fxSoftware+16:], uint32(len(x)))
	return binary.LittleEndian.AppendUint32(fp, fpMagic2)
}

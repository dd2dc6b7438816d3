package code

import "github.com/gokprobe/gokprobe/arch"

// More of what a handler finds (arch/x86/include/uapi/asm/ucontext.h, sigcontext.h; asm-generic/signal-defs.h).
const (
	ucReturn   = 192 // where what iretq takes is put: over err, trapno, oldmask, cr2 and fpstate
	frameToUc  = 8   // from the stack pointer at the handler's beginning
	segSs      = 6   // of ss, in the segments
	ucHasSs    = 2   // UC_SIGCONTEXT_SS
	userCs     = 0x33
	flagNT     = 1 << 14
	xstatePKRU = 1 << 9 // XSAVE's component of the protection keys' register
)

// The general registers in the order of struct sigcontext_64. Behind rcx come rsp, rip and eflags.
var sigcontextRegs = []byte{8, 9, 10, 11, 12, 13, 14, 15, di, si, bp, bx, dx, ax, cx}

// leaveStep ends the handler of a single step's end. One over a system call may have ended in sigsuspend(2) or its kin: there
// the context has another mask than the thread has now, and only sigreturn puts that back.
func (a *asm) leaveStep() (leaves []int) {
	a.emit(0x89, 0xc1)                          // mov    %eax,%ecx
	a.emit(0x81, 0xe1, 0xff, 0x0f, 0, 0)        // and    $4095,%ecx
	a.emit(0x83, 0xf9, 2)                       // cmp    $2,%ecx: in front of that may be nothing
	first := a.short(0x72)                      // jb     1f
	a.emit(0x80, 0x78, 0xfe, 0x0f)              // cmpb   $0x0f,-2(%rax): byte by byte, since AC may be set
	int80 := a.short(0x75)                      // jne    2f
	a.emit(0x80, 0x78, 0xff, 0x05)              // cmpb   $0x05,-1(%rax): syscall
	call := a.short(0x74)                       // je     1f
	a.land(int80)                               // 2:
	a.emit(0x80, 0x78, 0xfe, 0xcd)              // cmpb   $0xcd,-2(%rax)
	other := a.far(0x85)                        // jne    leave
	a.emit(0x80, 0x78, 0xff, 0x80)              // cmpb   $0x80,-1(%rax): int $0x80
	leaves = append(leaves, other, a.far(0x85)) // jne leave
	for _, j := range []int{first, call} {      // 1:
		a.land(j)
	}
	a.emit(0xc3) // ret
	return leaves
}

// leave goes on with the context of the handler, as rt_sigreturn(2) does, without a system call: a seccomp filter may end the
// program for that. It does so where the two come to the same:
//
//   - the thread blocks what it blocked before the signal: the guard's action blocks
//     nothing more, unless the target's own handler does, and an exception finds no
//     mask that is to be put back (sigsuspend(2), ppoll(2));
//   - the alternate stack was left alone (SS_AUTODISARM);
//   - the protection keys do not change, so that the frame can be read behind XRSTOR;
//   - the extended state is in the form of XSAVE, there is no shadow stack, and the context is that of 64-bit code.
//
// Everywhere else it returns to the restorer. Another signal may come at every
// instruction. Its frame is below the stack pointer, and the processor loads its state
// only from the first signal's frame, above it. The stack pointer is that of the
// handler's beginning up to the last instruction but one. A single step over iretq ends
// behind it, with the context's flags.
func (a *asm) leave(p arch.GuardPlace) {
	var not []int
	unless := func(cc byte) { not = append(not, a.far(cc)) }
	a.emit(0x83, 0x7e, siCode, 0) // cmpl  $0,si_code(%rsi)
	unless(0x8e)                  // jle   1f: it was sent
	a.emit(0x49, 0xb8)            // mov   $actions,%r8
	a.imm64(uint64(p.SavedAction(0)))
	a.emit(0x89, 0xf8)                   // mov   %edi,%eax
	a.emit(0xc1, 0xe0, 5)                // shl   $5,%eax
	a.emit(0x49, 0x83, 0x3c, 0x00, 1)    // cmpq  $SIG_IGN,(%r8,%rax)
	unless(0x87)                         // ja    1f: it blocks what the program's handler does
	a.emit(0x83, 0x7a, ucStackFlags, 0)  // cmpl  $0,ss_flags(%rdx)
	unless(0x8c)                         // jl    1f: SS_AUTODISARM
	a.emit(0xf6, 0x02, ucHasSs)          // testb $UC_SIGCONTEXT_SS,uc_flags(%rdx)
	unless(0x84)                         // je    1f
	a.emit(0x66, 0x81, 0xba)             //
	a.imm32(ucSegments)                  //
	a.emit(userCs, 0)                    // cmpw  $USER_CS,cs(%rdx)
	unless(0x85)                         // jne   1f
	a.emit(0xf7, 0x82)                   //
	a.imm32(ucEflags)                    //
	a.imm32(flagNT)                      // testl $NT,eflags(%rdx): iretq does not take it
	unless(0x85)                         // jne   1f
	a.emit(0x4c, 0x8b, 0x8a)             //
	a.imm32(ucFpstate)                   // mov   fpstate(%rdx),%r9
	a.emit(0x4d, 0x85, 0xc9)             // test  %r9,%r9
	unless(0x84)                         // je    1f
	a.emit(0x41, 0x81, 0xb9)             //
	a.imm32(fxSoftware)                  //
	a.imm32(fpMagic1)                    // cmpl  $FP_XSTATE_MAGIC1,magic1(%r9)
	unless(0x85)                         // jne   1f
	a.emit(0x31, 0xc0)                   // xor   %eax,%eax
	a.emit(0xf3, 0x48, 0x0f, 0x1e, 0xc8) // rdsspq %rax: nothing, where there is none
	a.emit(0x48, 0x85, 0xc0)             // test  %rax,%rax
	unless(0x85)                         // jne   1f
	a.sameKeys(unless)
	a.emit(0x41, 0x8b, 0x81)       //
	a.imm32(fxSoftware + 8)        // mov   xfeatures(%r9),%eax
	a.emit(0x41, 0x8b, 0x91)       //
	a.imm32(fxSoftware + 12)       // mov   xfeatures+4(%r9),%edx
	a.emit(0x49, 0x0f, 0xae, 0x29) // xrstor64 (%r9)
	reg := func(n int) int32 { return int32(frameToUc + ucGregs + 8*n) }
	word := func(n int) int32 { return int32(frameToUc + ucReturn + 8*n) }
	n := len(sigcontextRegs)
	for i, from := range []int32{reg(n + 1), 0, reg(n + 2), reg(n)} { // rip, cs, eflags, rsp
		if i == 1 {
			a.emit(0xb8, userCs, 0, 0, 0) // mov $USER_CS,%eax
		} else {
			a.atSP(0x8b, ax, from)
		}
		a.atSP(0x89, ax, word(i))
	}
	a.emit(0x0f, 0xb7, 0x84, 0x24)
	a.imm32(frameToUc + ucSegments + segSs) // movzwl ss(%rsp),%eax
	a.atSP(0x89, ax, word(4))
	a.emit(0x48, 0xc7, 0x84, 0x24) // movq $0,cs(%rsp): see above
	a.imm32(frameToUc + ucSegments)
	a.imm32(0)
	for i, r := range sigcontextRegs {
		a.atSP(0x8b, r, reg(i))
	}
	a.moveSP(word(0))
	a.emit(0x48, 0xcf) // iretq
	for _, j := range not {
		a.landFar(j)
	}
	a.emit(0xc3) // 1: ret
}

// sameKeys calls unless where the context whose XSAVE image is at %r9 has other rights by protection keys than the handler. cpuid tells where
// the image has them: rbx, which it changes, comes back with the context, one way or the other.
func (a *asm) sameKeys(unless func(cc byte)) {
	var same []int
	for _, word := range []uint32{fxSoftware + 8, xsaveHeader} { // there are keys; and they are not all zero, which permits all
		a.emit(0x41, 0xf7, 0x81)           //
		a.imm32(word)                      //
		a.imm32(xstatePKRU)                // testl $PKRU,word(%r9)
		same = append(same, a.short(0x74)) // je 1f
	}
	a.emit(0xb8, 0x0d, 0, 0, 0)    // mov   $13,%eax
	a.emit(0xb9, 9, 0, 0, 0)       // mov   $9,%ecx
	a.emit(0x0f, 0xa2)             // cpuid: its offset to %ebx
	a.emit(0x45, 0x8b, 0x14, 0x19) // mov   (%r9,%rbx),%r10d
	a.emit(0x31, 0xc9)             // xor   %ecx,%ecx
	a.emit(0x0f, 0x01, 0xee)       // rdpkru
	a.emit(0x41, 0x39, 0xc2)       // cmp   %eax,%r10d
	unless(0x85)                   // jne
	for _, j := range same {       // 1:
		a.land(j)
	}
}

// atSP is a mov of a 64-bit register from (0x8b) or to (0x89) the word that is off
// bytes above the stack pointer.
func (a *asm) atSP(op, reg byte, off int32) {
	a.emit(0x48|reg>>3<<2, op, 0x84|reg&7<<3, 0x24)
	a.imm32(uint32(off))
}

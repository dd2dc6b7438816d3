package code

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

var _ arch.Guards = Arch{}

// Offsets in bytes in what the kernel passes to a signal's handler (asm-generic/siginfo.h,
// arch/x86/include/uapi/asm/sigcontext.h).
const (
	siErrno, siCode, siAddr = 4, 8, 16
	ucRip, ucEflags         = 168, 176
	ucGregs, ucSigmask      = 40, 296
	gregs                   = 18 // general registers, rip and eflags
	actionMask              = 24
)

// The signals and codes that a guard tells apart, and the system calls that it makes.
const (
	sigIll, sigTrap                  = 4, 5
	codeKernel, codeTrace, codeBrkpt = 0x80, 2, 1

	restartSys, restartBlock = 512, 516 // ERESTARTSYS, ERESTART_RESTARTBLOCK
	sysRestart               = 219

	sysSigaction, sysSigprocmask, sysGetpid, sysGettid, sysKill, sysSigqueueinfo, sysTgsigqueueinfo, sysSigreturn = 13, 14, 39, 186, 62, 129, 297, 15
)

// AssembleGuard generates the handler. In C:
//
//	void guard(int sig, siginfo_t *info, ucontext_t *uc) {
//		addr ip = uc->rip;
//		if (sig == SIGTRAP) {
//			if (info->si_errno == OWN) { info->si_errno = 0; goto chain; }  // a live tracer says so
//			if (info->si_code == TRAP_BRKPT && (ip & 4095) && ip[-1] == INT1) goto chain;
//			if ((info->si_code == TRAP_TRACE || info->si_code == TRAP_BRKPT) && !(uc->eflags & TF)) return;  // a single step of the tracer's
//			if (info->si_code != SI_KERNEL) goto chain;
//			if (info->si_errno == MARK && info->si_addr == ip) return;      // moved there by the tracer
//			ip--;
//			if (ip == TRAP) { uc->… = saved context; return; } // made a system call for the tracer
//		}
//		if (to = lookup(ip)) { uc->rip = to; return; }
//		if (sig == SIGTRAP && ours(uc->rip)) return;                            // moved there by the tracer
//	chain:
//		the program's own action
//	}
//
// For the default action it sets that, and raises the signal again unless it comes
// again by itself. SIGTRAP behind a debugger's single step: the kernel has cleared TF
// in the context already (handle_signal in arch/x86/kernel/signal.c). A tracer that
// dies does not take its step back: of one over a system call the kernel tells at the
// call's end, with the code of int1 (user_single_step_report in
// arch/x86/kernel/ptrace.c). That may have been sigreturn: ip is anywhere.
func (Arch) AssembleGuard(at arch.Addr, p arch.GuardPlace) arch.Guard {
	a := &asm{at: at}
	a.emit(0xf3, 0x0f, 0x1e, 0xfa)                            // endbr64
	a.emit(0x48, 0x8b, 0x82, ucRip, 0, 0, 0)                  // mov  ip(%rdx),%rax
	a.emit(0x83, 0xff, sigTrap)                               // cmp  $SIGTRAP,%edi
	notTrap := a.far(0x85)                                    // jne  lookup
	a.emit(0x81, 0x7e, siErrno)                               // cmpl $OWN,si_errno(%rsi)
	a.imm32(arch.GuardOwnCode)                                //
	notSaid := a.short(0x75)                                  // jne  1f
	a.emit(0xc7, 0x46, siErrno, 0, 0, 0, 0)                   // movl $0,si_errno(%rsi)
	chains := []int{a.far(0x84)}                              // je   chain
	a.land(notSaid)                                           // 1:
	a.emit(0x8b, 0x4e, siCode)                                // mov  si_code(%rsi),%ecx
	a.emit(0x81, 0xf9, codeKernel, 0, 0, 0)                   // cmp  $SI_KERNEL,%ecx
	isBreakpoint := a.short(0x74)                             // je   breakpoint
	a.emit(0x83, 0xf9, codeTrace)                             // cmp  $TRAP_TRACE,%ecx
	step := a.short(0x74)                                     // je   step
	a.emit(0x83, 0xf9, codeBrkpt)                             // cmp  $TRAP_BRKPT,%ecx
	chains = append(chains, a.far(0x85))                      // jne  chain
	a.emit(0xa9, 0xff, 0x0f, 0, 0)                            // test $4095,%eax: in front of that may be nothing
	first := a.short(0x74)                                    // je   step
	a.emit(0x80, 0x78, 0xff, 0xf1)                            // cmpb $INT1,-1(%rax)
	chains = append(chains, a.far(0x84))                      // je   chain
	a.land(step)                                              // step:
	a.land(first)                                             //
	a.emit(0xf7, 0x82, ucEflags, 0, 0, 0, 0, flagTF>>8, 0, 0) // testl $TF,eflags(%rdx)
	chains = append(chains, a.far(0x85))                      // jne  chain
	leaves := a.leaveStep()                                   // … leave
	a.land(isBreakpoint)                                      // breakpoint:
	a.emit(0x81, 0x7e, siErrno)                               // cmpl $MARK,si_errno(%rsi)
	a.imm32(arch.GuardMarkCode)                               //
	unmarked := a.short(0x75)                                 // jne  1f
	a.emit(0x48, 0x3b, 0x46, siAddr)                          // cmp  si_addr(%rsi),%rax
	leaves = append(leaves, a.far(0x84))                      // je   leave
	a.land(unmarked)                                          // 1:
	a.emit(0x48, 0xff, 0xc8)                                  // dec  %rax
	a.restore(p)
	a.landFar(notTrap)                       // lookup:
	misses := a.lookup(p)                    // … to %rcx
	a.emit(0x48, 0x89, 0x8a, ucRip, 0, 0, 0) // mov  %rcx,ip(%rdx)
	leaves = append(leaves, a.always())      // jmp  leave
	for _, m := range misses {               // miss:
		a.land(m)
	}
	a.emit(0x83, 0xff, sigTrap)          // cmp  $SIGTRAP,%edi
	chains = append(chains, a.far(0x85)) // jne  chain
	stays, other := a.ours(p)            // … leave, chain
	leaves = append(leaves, stays)
	chains = append(chains, other)
	for _, c := range chains { // chain:
		a.landFar(c)
	}
	a.chain(p)
	g := arch.Guard{Handler: at, Restorer: a.here()}
	a.emit(0x48, 0xc7, 0xc0, sysSigreturn, 0, 0, 0, 0x0f, 0x05) // as unwinders know it
	for _, l := range leaves {                                  // leave:
		a.landFar(l)
	}
	a.leave(p)
	g.Code = a.code
	return g
}

// restore ends the handler for a thread that comes to p.Trap: it gets its own registers back.
func (a *asm) restore(p arch.GuardPlace) {
	a.emit(0x49, 0xb8) // mov  $trap,%r8
	a.imm64(uint64(p.Trap))
	a.emit(0x4c, 0x39, 0xc0) // cmp  %r8,%rax
	other := a.short(0x75)   // jne  1f
	a.emit(0x48, 0xbe)       // mov  $context,%rsi
	a.imm64(uint64(p.SavedContext()))
	a.emit(0x48, 0x8d, 0x7a, ucGregs)                                  // lea  gregs(%rdx),%rdi
	a.emit(0xb9, gregs, 0, 0, 0)                                       // mov  $18,%ecx
	a.emit(0xf3, 0x48, 0xa5)                                           // rep movsq
	a.emit(0x48, 0x8b, 0x06)                                           // mov  (%rsi),%rax
	a.emit(0x48, 0x89, 0x82, ucSigmask&0xff, ucSigmask>>8, 0, 0, 0xc3) // mov  %rax,sigmask(%rdx); ret
	a.land(other)                                                      // 1:
}

// Context is registers in the order of struct sigcontext_64, and the mask. A system call
// that a stop has interrupted is made again (arch_do_signal_or_restart in arch/x86/kernel/signal.c).
func (a Arch) Context(regs arch.Regs, mask uint64) []byte {
	r := *regs.(*Regs)
	if v := int64(r.Rax); int64(r.Orig_rax) >= 0 && v <= -restartSys && v >= -restartBlock {
		r.Rax = r.Orig_rax
		if v == -restartBlock {
			r.Rax = sysRestart
		}
		r.Rip -= uint64(len(a.SyscallInsn()))
	}
	var b []byte
	for _, v := range []uint64{r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rdi, r.Rsi, r.Rbp, r.Rbx,
		r.Rdx, r.Rax, r.Rcx, r.Rsp, r.Rip, r.Eflags, mask} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// far begins a long conditional jump forward, whose second opcode byte is op.
func (a *asm) far(op byte) (jump int) {
	a.emit(0x0f, op, 0, 0, 0, 0)
	return len(a.code)
}

// always begins a long jump forward.
func (a *asm) always() (jump int) {
	a.emit(0xe9, 0, 0, 0, 0)
	return len(a.code)
}

// landFar makes the jump that far or always began lead here.
func (a *asm) landFar(jump int) {
	binary.LittleEndian.PutUint32(a.code[jump-4:], uint32(len(a.code)-jump))
}

// imm64 appends an immediate operand.
func (a *asm) imm64(v uint64) { a.code = binary.LittleEndian.AppendUint64(a.code, v) }

// lookup looks %rax up in the resume table. The result is in %rcx; the jumps are those taken
// when there is none.
func (a *asm) lookup(p arch.GuardPlace) (misses []int) {
	entries := byte(p.ResumeEntries)
	a.emit(0x49, 0xb8) // mov  $resume,%r8
	a.imm64(uint64(p.Resume))
	a.emit(0x4d, 0x8b, 0x00)       // mov  (%r8),%r8
	a.emit(0x41, 0x8b, 0x08)       // mov  (%r8),%ecx
	a.emit(0x4d, 0x8b, 0x48, 0x08) // mov  8(%r8),%r9
	a.emit(0x49, 0xba)             // mov  $hash,%r10
	a.imm64(p.ResumeHash)
	a.emit(0x4c, 0x0f, 0xaf, 0xd0) // imul %rax,%r10
	a.emit(0x49, 0xd3, 0xea)       // shr  %cl,%r10
	loop := len(a.code)
	a.emit(0x4d, 0x89, 0xd3)                  // mov  %r10,%r11
	a.emit(0x49, 0xc1, 0xe3, 4)               // shl  $4,%r11
	a.emit(0x4b, 0x8b, 0x4c, 0x18, entries)   // mov  entries(%r8,%r11),%rcx
	a.emit(0x48, 0x39, 0xc1)                  // cmp  %rax,%rcx
	found := a.short(0x74)                    // je   found
	a.emit(0x48, 0x85, 0xc9)                  // test %rcx,%rcx
	misses = append(misses, a.short(0x74))    // je   miss
	a.emit(0x49, 0xff, 0xc2)                  // inc  %r10
	a.emit(0x4d, 0x21, 0xca)                  // and  %r9,%r10
	a.back(0xeb, loop)                        // jmp  loop
	a.land(found)                             // found:
	a.emit(0x4b, 0x8b, 0x4c, 0x18, entries+8) // mov  entries+8(%r8,%r11),%rcx
	a.emit(0x48, 0x85, 0xc9)                  // test %rcx,%rcx
	return append(misses, a.short(0x74))      // je   miss
}

// ours tells whether the thread stands in our code. One of the jumps is taken.
func (a *asm) ours(p arch.GuardPlace) (is, not int) {
	a.emit(0x48, 0x8b, 0x82, ucRip, 0, 0, 0) // mov  ip(%rdx),%rax
	a.emit(0x49, 0xb8)                       // mov  $count,%r8
	a.imm64(uint64(p.Count))
	a.emit(0x41, 0x8b, 0x08) // mov  (%r8),%ecx
	a.emit(0x49, 0xb8)       // mov  $first,%r8
	a.imm64(uint64(p.First))
	loop := len(a.code)
	a.emit(0x85, 0xc9)                      // test %ecx,%ecx
	not = a.far(0x84)                       // je   chain
	a.emit(0x49, 0x3b, 0x40, byte(p.Start)) // cmp  start(%r8),%rax
	below := a.short(0x72)                  // jb   1f
	a.emit(0x49, 0x3b, 0x40, byte(p.End))   // cmp  end(%r8),%rax
	above := a.short(0x73)                  // jae  1f
	is = a.always()                         // jmp  leave
	a.land(below)                           // 1:
	a.land(above)
	a.emit(0x49, 0x81, 0xc0) // add  $step,%r8
	a.imm32(uint32(p.Step))
	a.emit(0xff, 0xc9) // dec  %ecx
	a.back(0xeb, loop) // jmp  loop
	return is, not
}

// chain does what the program itself wants to be done with the signal.
func (a *asm) chain(p arch.GuardPlace) {
	a.emit(0x49, 0xb8) // mov  $actions,%r8
	a.imm64(uint64(p.SavedAction(0)))
	a.emit(0x89, 0xf8)             // mov  %edi,%eax
	a.emit(0xc1, 0xe0, 5)          // shl  $5,%eax
	a.emit(0x49, 0x8b, 0x04, 0x00) // mov  (%r8,%rax),%rax
	a.emit(0x48, 0x83, 0xf8, 0x01) // cmp  $SIG_IGN,%rax
	simple := a.short(0x76)        // jbe  1f
	a.emit(0xff, 0xe0)             // jmp  *%rax
	a.land(simple)                 // 1:
	a.emit(0x83, 0x7e, siCode, 0)  // cmpl $0,si_code(%rsi)
	raised := a.short(0x7f)        // jg   default
	a.emit(0x85, 0xc0)             // test %eax,%eax
	fallsBack := a.short(0x74)     // je   default
	a.emit(0xc3)                   // ret  (ignored)
	a.land(raised)                 // default:
	a.land(fallsBack)
	a.emit(0x49, 0x89, 0xf1) // mov  %rsi,%r9
	a.emit(0x41, 0x89, 0xf8) // mov  %edi,%r8d
	waits := a.waits(p)      // … send
	a.syscall(sysSigaction)
	a.emit(0x41, 0x83, 0xf8, sigTrap)   // cmp  $SIGTRAP,%r8d
	trap := a.short(0x74)               // je   send
	a.emit(0x41, 0x83, 0x79, siCode, 0) // cmpl $0,si_code(%r9)
	again := a.short(0x7e)              // jle  send
	a.emit(0xc3)                        // ret  (the instruction raises it again)
	a.land(trap)                        // send:
	a.land(again)
	a.landFar(waits)
	a.emit(0x31, 0xff)                   // xor  %edi,%edi  (SIG_BLOCK, until sigreturn)
	a.emit(0x48, 0x83, 0xc6, actionMask) // add  $mask,%rsi
	a.syscall(sysSigprocmask)
	a.syscall(sysGetpid)
	a.emit(0x89, 0xc7)                  // mov  %eax,%edi
	a.emit(0x41, 0x83, 0x79, siCode, 0) // cmpl $SI_USER,si_code(%r9)
	other := a.short(0x75)              // jne  1f
	a.emit(0x44, 0x89, 0xc6)            // mov  %r8d,%esi
	a.emit(0x4c, 0x89, 0xca)            // mov  %r9,%rdx
	a.syscall(sysSigqueueinfo)          // to the process, as it was; only its first thread may say that somebody else has sent it
	a.emit(0x85, 0xc0)                  // test %eax,%eax
	sent := a.short(0x79)               // jns  2f
	a.syscall(sysKill)                  //
	a.land(sent)                        // 2:
	a.emit(0xc3)                        // ret
	a.land(other)                       // 1:
	a.syscall(sysGettid)
	a.emit(0x89, 0xc6)       // mov  %eax,%esi
	a.emit(0x44, 0x89, 0xc2) // mov  %r8d,%edx
	a.emit(0x4d, 0x89, 0xca) // mov  %r9,%r10
	a.syscall(sysTgsigqueueinfo)
	a.emit(0xc3) // ret
}

// waits makes a signal that was sent wait, because the thread believes to block it.
// Such a thread blocks nearly all signals; the tracer has taken only the ones that
// breakpoints raise out of its mask (ptrace.Sigset.Unforced). They are put in again:
// from then on a breakpoint is the end of the process, but the signal would be that
// now. The jump is taken then; if not, rsi, rdx and r10 are what rt_sigaction(2) takes.
func (a *asm) waits(p arch.GuardPlace) (jump int) {
	const nearlyAll = 28     // of Unforced, without the two, SIGKILL and SIGSTOP
	a.emit(0x48, 0x8b, 0x82) //
	a.imm32(ucSigmask)       // mov  sigmask(%rdx),%rax
	a.emit(0x49, 0x89, 0xd3) // mov  %rdx,%r11
	a.emit(0x48, 0xbe)       // mov  $default,%rsi
	a.imm64(uint64(p.DefaultAction()))
	a.emit(0x31, 0xd2)                     // xor  %edx,%edx
	a.emit(0x41, 0xba)                     // mov  $8,%r10d
	a.imm32(8)                             //
	a.emit(0x41, 0x83, 0x79, siCode, 0)    // cmpl $0,si_code(%r9)
	raised := a.short(0x7f)                // jg   2f
	a.emit(0x31, 0xc9)                     // xor  %ecx,%ecx
	loop := len(a.code)                    // 1:
	a.emit(0x48, 0x01, 0xc0)               // add  %rax,%rax
	a.emit(0x83, 0xd1, 0)                  // adc  $0,%ecx
	a.emit(0x48, 0x85, 0xc0)               // test %rax,%rax
	a.back(0x75, loop)                     // jne  1b
	a.emit(0x83, 0xf9, nearlyAll)          // cmp  $28,%ecx
	few := a.short(0x72)                   // jb   2f
	a.emit(0x49, 0x83, 0x8b)               //
	a.imm32(ucSigmask)                     //
	a.emit(1<<(sigTrap-1) | 1<<(sigIll-1)) // orq $TRAPS,sigmask(%r11)
	jump = a.always()                      // jmp  send
	a.land(raised)                         // 2:
	a.land(few)
	return jump
}

func (a *asm) syscall(nr uint32) {
	a.emit(0xb8) // mov  $nr,%eax
	a.imm32(nr)
	a.emit(0x0f, 0x05)
}

// Alone generates a copy that needs no tracer. Near branches become the same as in a
// detour; everything else is copied and followed by a jump back.
func (Arch) Alone(at arch.Addr, p arch.Plan) ([]byte, error) {
	parts, err := amd64.PartsOf(p.Insn)
	if err != nil {
		return nil, fmt.Errorf("code at %s: %w", at, err)
	}
	if parts.Near {
		d, err := Arch{}.AssembleDetour(at, []arch.Insn{p.Insn}, nil)
		if err != nil {
			return nil, err
		}
		return d.Code, nil
	}
	a := &asm{at: at}
	a.emit(p.Insn.Bytes...)
	a.err = writeCopy(a.code, &parts, p.Insn.Bytes, at)
	a.jmp(p.Insn.End())
	if a.err != nil {
		return nil, fmt.Errorf("code at %s for %s: %w", at, p.Insn.Addr, a.err)
	}
	return a.code, nil
}

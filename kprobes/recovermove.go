package kprobes

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// moveOut takes a stopped thread that is in l's code, or was about to be sent there, to the
// original code. It reports whether it was.
func (r *recovery) moveOut(l *leftover, th *ptrace.Thread) (moved bool) {
	if !th.Stopped() {
		return false
	}
	regs, err := th.Regs()
	if err != nil {
		return false
	}
	if moved = r.trapped(l, th, regs); !moved && !l.contains(regs.IP()) {
		return false
	}
	if r.steps == nil {
		r.steps = stepsFor(len(r.space.Threads()))
	}
	for ; *r.steps > 0; *r.steps-- { // also for places that lead to each other
		regs, err := th.Regs()
		if err != nil || !l.contains(regs.IP()) {
			break
		}
		if orig, pop, ok := l.origin(regs.IP()); ok {
			regs.SetIP(orig)
			regs.SetSP(regs.SP() + arch.Addr(pop))
			continue // perhaps a slot's, whose detour it was
		}
		if to, ok, err := l.ResumeAt(l.mem, regs.IP()); ok && err == nil {
			regs.SetIP(to) // a breakpoint, or a read of memory that is better not made now
			continue
		}
		if r.breakpointAt(regs.IP()) || !r.steps.step(r.space, th, regs.IP()) {
			break
		}
	}
	th.RunFree()
	if th.Held() {
		th.Release()
	}
	return true
}

// breakpointAt tells of a breakpoint that nothing is known of. It is no thread's way out of our code, which is filled up with them: one that
// comes to it has been led there by code that is not what we wrote. It stays there.
func (r *recovery) breakpointAt(ip arch.Addr) bool {
	now := make([]byte, len(ptrace.Host.Breakpoint()))
	return r.space.ReadMemory(ip, now) == nil && bytes.Equal(now, ptrace.Host.Breakpoint())
}

// trapped deals with a thread that has raised an exception by our doing: it does not get the
// signal, and goes on where the guard would have sent it.
func (r *recovery) trapped(l *leftover, th *ptrace.Thread, regs arch.Regs) bool {
	if th.Stop().Reason != ptrace.Signal && th.Stop().Reason != ptrace.Breakpoint {
		return false
	}
	info, err := th.Siginfo()
	if err != nil || !info.Synchronous() {
		return false
	}
	to, ours := l.afterTrap(info, regs)
	if ours {
		regs.SetIP(to)
		th.DropSignal()
		th.MovedOut()
	}
	return ours
}

// afterTrap is what the guard does (arch.Guards).
func (l *leftover) afterTrap(info *ptrace.Siginfo, regs arch.Regs) (to arch.Addr, ours bool) {
	ip := regs.IP()
	at := ip
	switch info.Signo() {
	case unix.SIGTRAP:
		switch {
		case info.SingleStep():
			return ip, !regs.TrapFlag()
		case !info.Breakpoint():
			return 0, false
		case info.Marked() && info.Addr() == ip:
			return ip, true
		}
		at = ip.Add(int64(-ptrace.Host.BreakpointAdvance()))
	case unix.SIGILL, unix.SIGSEGV, unix.SIGBUS:
	default:
		return 0, false
	}
	if to, ok, err := l.ResumeAt(l.mem, at); ok && err == nil {
		return to, true
	}
	return ip, info.Signo() == unix.SIGTRAP && l.contains(ip)
}

// contains tells whether ip is in l's code.
func (l *leftover) contains(ip arch.Addr) bool {
	for _, e := range l.Arenas {
		if e.Code.Contains(ip) {
			return true
		}
	}
	return false
}

// origin is where in the original code a thread at ip in l's code would be, once its stack
// pointer is pop bytes higher. ok is false if it has to be run on first.
func (l *leftover) origin(ip arch.Addr) (orig arch.Addr, pop int, ok bool) {
	if l.guard.Code.Contains(ip) {
		return 0, 0, false
	}
	for _, d := range l.detours {
		if d.Detour.Range().Contains(ip) {
			return d.Detour.Original(ip)
		}
	}
	at, site, ok, err := l.Site(l.mem, ip)
	if !ok || err != nil {
		return 0, 0, false
	}
	return l.inSlot(at, site, ip)
}

// inSlot is origin for the slot at slot, whose site is at site.
func (l *leftover) inSlot(slot, site, ip arch.Addr) (orig arch.Addr, pop int, ok bool) {
	insn, err := l.original.insn(site)
	if err != nil {
		return 0, 0, false
	}
	plan, err := ptrace.Host.Plan(insn)
	if err != nil {
		return 0, 0, false
	}
	s, err := ptrace.Host.Assemble(plan, slot)
	if err != nil {
		return 0, 0, false
	}
	if orig, _, ok := s.Origin(ip); ok {
		return orig, 0, true
	}
	if s.Alone != slot || s.Boost != 0 {
		return 0, 0, false
	}
	if plan.Method == arch.SystemCall { // in it, if it restarts
		return insn.End(), 0, ip == slot+arch.Addr(insn.Len()) || ip == slot
	}
	d, err := hostDetours.AssembleDetour(slot, []arch.Insn{insn}, nil)
	if err != nil {
		return 0, 0, false
	}
	return d.Original(ip)
}

// stackScan is how far, in bytes, stacks are searched for the contexts that signals have saved.
const stackScan = 1 << 20

// returnsInto puts right the contexts that signals have saved on the thread's stacks, as far as
// they can be. It reports whether some can't.
func (r *recovery) returnsInto(l *leftover, th *ptrace.Thread) (left bool) {
	regs, err := th.Regs()
	if !th.Stopped() || err != nil {
		return false
	}
	seen := map[arch.Addr]bool{}
	for todo := []arch.Addr{regs.SP()}; len(todo) > 0; todo = todo[1:] {
		sp := todo[0] &^ 7
		if seen[sp] {
			continue
		}
		seen[sp] = true
		stack := r.stack(sp)
		for off := 0; off+contextLen <= len(stack); off += 8 {
			f := savedContext(stack[off:][:contextLen])
			if !f.is() || !sameStack(stack, off, sp) {
				continue
			}
			todo = append(todo, f.sp())
			left = left || l.returnsToGuard(stack, off)
			if !l.contains(f.ip()) {
				continue
			}
			orig, pop, ok := l.origin(f.ip())
			if ok {
				ok = r.space.WriteMemory(sp+arch.Addr(off), f.at(orig, f.sp()+arch.Addr(pop))) == nil
			}
			left = left || !ok
		}
	}
	return left
}

// sameStack tells of the context at off on a stack, which was read from sp on, that the thread whose stack pointer that is returns by it. The context tells where the alternate stack of the
// signal's thread is: if it lies there, and sp does not, or the other way round, then it is of another thread's signal, or of one whose handler has returned long ago.
func sameStack(stack []byte, off int, sp arch.Addr) bool {
	const before, size = 144, 16 // from ss_sp of uc_stack to the context's rsp; to ss_size (struct ucontext, stack_t)
	if off < before {
		return true
	}
	alternate := arch.Range{Start: arch.Addr(binary.LittleEndian.Uint64(stack[off-before:]))}
	alternate.End = alternate.Start.Add(int64(binary.LittleEndian.Uint64(stack[off-before+size:])))
	return alternate.Contains(sp+arch.Addr(off)) == alternate.Contains(sp)
}

// returnsToGuard tells of the context at off on a stack that the handler which it was saved for returns by the guard's code.
func (l *leftover) returnsToGuard(stack []byte, off int) bool {
	const context = 168 // from the return address to the context's rsp (struct rt_sigframe in arch/x86/include/asm/sigframe.h)
	return off >= context && l.guard.Code.Contains(arch.Addr(binary.LittleEndian.Uint64(stack[off-context:])))
}

// stack reads from sp on what there is.
func (r *recovery) stack(sp arch.Addr) []byte {
	const piece = 4096
	var all []byte
	for at := sp; at < sp+stackScan; at = (at + piece) &^ (piece - 1) {
		b := make([]byte, piece-at%piece)
		if r.space.ReadMemory(at, b) != nil {
			break
		}
		all = append(all, b...)
	}
	return all
}

// savedContext is the part of a signal's context from rsp to csgsfs (arch/x86/include/uapi/asm/sigcontext.h).
type savedContext []byte

const contextLen = 32

func (f savedContext) word(n int) uint64 { return binary.LittleEndian.Uint64(f[8*n:]) }

// is tells whether these can be a context's: the flags have their fixed bit, and cs is that of
// 64-bit user code, ss that of its data.
func (f savedContext) is() bool {
	const fixed, unused, selectors = 1 << 1, ^uint64(1<<22 - 1), 0x002b_0000_0000_0033
	flags := f.word(2)
	return flags&fixed != 0 && flags&unused == 0 && f.word(3) == selectors && f.word(1) != 0
}

func (f savedContext) sp() arch.Addr { return arch.Addr(f.word(0)) }
func (f savedContext) ip() arch.Addr { return arch.Addr(f.word(1)) }

// at is f with other addresses.
func (f savedContext) at(ip, sp arch.Addr) []byte {
	b := bytes.Clone(f)
	binary.LittleEndian.PutUint64(b, uint64(sp))
	binary.LittleEndian.PutUint64(b[8:], uint64(ip))
	return b
}

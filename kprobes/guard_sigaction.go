package kprobes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// What the program itself wants done with SIGTRAP, where the guard stands in its place (guard.go).
//
// For a signal that is not ours, the guard calls the target's handler, takes the
// default action, or ignores it. So it is the process's action all the time, and the
// program's own is what the guard's data say. Calls of rt_sigaction(2) about SIGTRAP
// have to tell and change that. In front of them stand tails (guard_masksites.go) with
// a breakpoint, where the tracer makes the call:
//
//	the thread stops               nothing has happened
//	the new action is set          by the kernel, which reads and judges it; signals that wait are dropped if it says so
//	it is saved, the guard set     with its mask and flags: Remote.Guard
//	the old one is written         and the thread goes on behind the call, with its result
//
// Other threads may raise SIGTRAP in between: those of breakpoints stop for us first, their own have the one action or the other, as without us. Should we be
// killed, the program's own action stands for some microseconds, without a guard; or it is all done but for the result: the thread
// makes the call once more, to the same end, but that it is told the guard's action as the old one.
// After our death the tails go on by themselves (arch.Masks.ActionTail).
//
// A process that shares the memory, not the actions, has none saved: a child that posix_spawn(3) makes. It sets all
// that are handlers to the default, before it executes its program, which would take the guard away. It is told that it
// has. What else it sets, it sets.
//
// Calls that have no tail, in generated code, or that a SyscallProbe is to see, are made as they are: then the program has taken the guard away, and gets
// by without (ptrace.Handler).

// actionCall is called for a thread at a breakpoint of det's tail.
func (hs *hits) actionCall(th *ptrace.Thread, d *domain, det *detour, regs arch.Regs) {
	regs.SetIP(det.End) // it makes the call itself
	call := actionArgs(regs)
	if !d.guard.has(unix.SIGTRAP) || call.size != setLen || d.masks.watchesCall(det.End) {
		return
	}
	th.RestoreTrap()
	saved := make([]byte, arch.ActionLen)
	if d.space.ReadMemory(d.guard.state.Place.SavedAction(int(unix.SIGTRAP)), saved) != nil {
		return
	}
	var errno unix.Errno
	if call.action != 0 {
		done, err := d.guard.setAction(th.Proc, call.action)
		if !done {
			return
		}
		errno = err
	}
	if errno == 0 && call.old != 0 && d.space.WriteMemory(call.old, saved) != nil {
		errno = unix.EFAULT
	}
	regs.SetReturnValue(-uint64(errno))
	host.Arch.SkipCall(regs, det.End)
}

// actionArgs are the arguments of a call of rt_sigaction(2) that a thread is in front of.
func actionArgs(regs arch.Regs) (call struct {
	action, old arch.Addr
	size        uint64
}) {
	var args [4]uint64
	for i := range args {
		args[i], _ = regs.Get(host.Arch.SyscallArgs()[i])
	}
	call.action, call.old, call.size = arch.Addr(args[1]), arch.Addr(args[2]), args[3]
	return call
}

// watchesCall tells whether somebody wants to see the calls of rt_sigaction that are made at insn.
func (mk *masks) watchesCall(insn arch.Addr) bool {
	return mk.d.sites[insn] != nil || slices.ContainsFunc(mk.d.session.syscalls.all, func(sp *SyscallProbe) bool {
		return slices.Contains(sp.Numbers, unix.SYS_RT_SIGACTION)
	})
}

// passGuard sends a thread that the guard is about to send to the program's own handler
// there, where another signal's handler may see it. The handler's arguments are in
// registers that the guard does not change; arch.GuardOwnCode describes the guard's
// memory.
func (g *guard) passGuard(regs arch.Regs) {
	sig, _ := regs.Arg(0)
	info, _ := regs.Arg(1)
	b := make([]byte, 8)
	if regs.IP() >= g.d.guard.state.Restorer || sig != uint64(unix.SIGTRAP) || g.d.space.ReadMemory(g.d.guard.state.Place.SavedAction(int(sig)), b) != nil {
		return
	}
	if handler := arch.Addr(binary.LittleEndian.Uint64(b)); handler > ignored {
		const errno, n = 4, 4 // si_errno
		if g.d.space.ReadMemory(arch.Addr(info)+errno, b[:n]) == nil && binary.LittleEndian.Uint32(b) == arch.GuardOwnCode {
			_ = g.d.space.WriteMemory(arch.Addr(info)+errno, make([]byte, n))
		}
		regs.SetIP(handler)
	}
}

// ignored is SIG_IGN.
const ignored = 1

// setAction makes the action at at the program's own in p. done is false if the thread is to set it itself, and nothing has happened.
func (g *guard) setAction(p *ptrace.Process, at arch.Addr) (done bool, errno unix.Errno) {
	if g.d.space.Processes()[0] != p {
		handler := make([]byte, setLen)
		if g.d.space.ReadMemory(at, handler) != nil || !bytes.Equal(handler, make([]byte, setLen)) {
			return false, 0
		}
		return p.DefaultTrap(), 0
	}
	code := g.guardHandler(unix.SIGTRAP)
	code.OnStack = g.runsGo() // behind the handler that comes now
	err := p.Remote(func(r *ptrace.Remote) error {
		err := r.SetOwn(unix.SIGTRAP, at)
		if errors.As(err, &errno) {
			done = true
			return nil
		}
		if err != nil {
			return err
		}
		done = true
		place := g.d.guard.state.Place
		err = r.Guard(unix.SIGTRAP, code, place.SavedAction(int(unix.SIGTRAP)), place.ScratchAction(), func() error { return nil })
		if err != nil {
			r.ForgetTrap()
		}
		return err
	})
	if errors.Is(err, ptrace.ErrOnce) {
		g.d.guard.state.Installed &^= 1 << uint(unix.SIGTRAP)
		err = g.d.region.NoteGuard(g.d.guard.state)
	}
	if err != nil && !ptrace.Departed(err) {
		g.d.session.warn("the process may not survive if gokprobe is killed: %v", g.d.unlessEnding(err))
	}
	return done, errno
}

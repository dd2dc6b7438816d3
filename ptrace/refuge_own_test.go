package ptrace

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestAThreadIsLedOutOfARefuge to where it was, with its registers and its mask, as if the tracer that has put it there had been killed: from spare memory,
// and from a frame on its own stack, whose mark is taken away.
func TestAThreadIsLedOutOfARefuge(t *testing.T) {
	for _, deep := range []bool{false, true} {
		prog := testprog.Start(t, testprog.Build(t, "prey"))
		if deep {
			prog.Do("call recurse 7000", "ret") // touches the initial stack's lowest pages
		}
		withTarget(t, prog, func(p *Process) {
			for calls := range 3 {
				must(p.Space.Freeze(func(frozen *Frozen) error {
					th := p.Leader()
					own, mask := *must2(th.hostRegs()), must2(th.sigmask())
					mark := arch.Addr(0)
					must(p.Remote(func(r *Remote) error {
						for range calls {
							must2(r.Syscall(unix.SYS_GETPPID))
						}
						if mark = th.at.errand.mark; !th.at.errand.sheltered || (mark != 0) != deep {
							t.Errorf("it has a refuge: %v, with a mark at %s", th.at.errand.sheltered, mark)
							return nil
						}
						if now := must2(th.sigmask()); now|unblockable != allSignals {
							t.Errorf("in its refuge it blocks %x", now)
						}
						before := th.at.errand
						p.Space.LeaveRefuges(frozen)
						now := must2(th.hostRegs())
						insn := len(host.Arch.SyscallInsn())
						if restarts := now.IP() == own.IP().Add(int64(-insn)); !restarts && now.IP() != own.IP() || now.SP() != own.SP() || now.CallArg(0) != own.CallArg(0) {
							t.Errorf("it stands at %s with its stack at %s, was at %s with %s", now.IP(), now.SP(), own.IP(), own.SP())
						}
						if m := must2(th.sigmask()); m != mask {
							t.Errorf("it blocks %x, before %x", m, mask)
						}
						th.at.errand = before
						return nil
					}))
					if now := *must2(th.hostRegs()); now != own {
						t.Errorf("afterwards the registers are\n%+v, were\n%+v", now, own)
					}
					if left := make([]byte, len(frameMark)); deep {
						if must(p.Space.ReadMemory(mark, left)); !bytes.Equal(left, make([]byte, len(frameMark))) {
							t.Errorf("at %s is %q still", mark, left)
						}
					}
					p.Space.LeaveRefuges(frozen) // there is none
					if now := *must2(th.hostRegs()); now != own {
						t.Error("a thread that is in no refuge was led out of it")
					}
					return nil
				}))
			}
		})
		if got := prog.Do("call foo 3", "ret"); got != "ret 7" {
			t.Errorf("the program says %q", got)
		}
		if got := prog.Quit(); got != "right" {
			t.Errorf("the program says %q, want right", got)
		}
	}
}

// TestOnlyStacksAreTakenForStacks: a place below the stack pointer is a thread's own only in the initial stack, or in one of the C library's.
func TestOnlyStacksAreTakenForStacks(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "2")
	withTarget(t, prog, func(p *Process) {
		must(p.Space.Freeze(func(*Frozen) error {
			const redZone = 128
			places := findPlaces(p.PID)
			for _, th := range p.Threads() {
				regs := must2(th.hostRegs())
				sp, tp := regs.SP(), regs.ThreadPointer()
				m := must2(p.Space.mapAt(sp))
				if got, ok := p.Space.stackBelow(sp, tp); !ok || got != (arch.Range{Start: m.Range.Start, End: sp - redZone}) {
					t.Errorf("thread %d: %v, below %s, in %s", th.TID, got, sp, m.Range)
				}
				if got, ok := p.Space.stackBelow(m.Range.Start+redZone/2, tp); !ok || got.Len() != 0 {
					t.Errorf("thread %d, at its stack's end: %v, %v", th.TID, got, ok)
				}
				for _, other := range []arch.Addr{places.data.Start + 64, places.text.Start + 64, 0x10} {
					if got, ok := p.Space.stackBelow(other, tp); ok {
						t.Errorf("%s is in the stack %s", other, got)
					}
				}
				if initial := m.Path == "[stack]"; !initial {
					if got, ok := p.Space.stackBelow(sp, places.data.Start); ok {
						t.Errorf("a stack without the thread pointer: %s", got)
					}
				}
			}
			return nil
		}))
	})
}

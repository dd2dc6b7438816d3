package ptrace

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// siginfoOf is that of a signal with a code.
func siginfoOf(sig unix.Signal, code int32) *Siginfo {
	info := new(Siginfo)
	binary.LittleEndian.PutUint32(info[0:], uint32(sig))
	binary.LittleEndian.PutUint32(info[8:], uint32(code))
	return info
}

// TestAStandingIsTakenBackWhole: what we are in the middle of comes back as it was; what the kernel has of the thread does not.
func TestAStandingIsTakenBackWhole(t *testing.T) {
	info := siginfoOf(unix.SIGTRAP, 1)
	for _, c := range []struct {
		name           string
		before, there  bool // a signal can be delivered from the stop
		wantInjectable bool
	}{
		{"from one signal's stop to another's", true, true, true},
		{"to a stop without a signal", true, false, false},
		{"from a stop without a signal", false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &standing{halt: halt{stop: Stop{Reason: Breakpoint}, injectable: c.before, inCopy: true}, next: nextEntry, restartAt: 0x40, trapAt: 0x50, returned: true, deciding: true, lonely: true}
			s.regs.own.SetIP(0x1000)
			s.regs.kernel.SetIP(0x1000)
			there := s.elsewhere()
			if there.stop != s.stop || there.next != nextAny || there.restartAt != 0 || there.trapAt != 0 || there.returned || there.deciding || there.lonely {
				t.Errorf("the new standing is %+v", there)
			}
			there.halted(Stop{Reason: Interrupt})
			there.injectable = c.there
			there.regs.own.SetIP(0x2000)
			there.regs.kernel.SetIP(0x2000)
			s.resettle(there, info)
			if s.regs.own.IP() != 0x1000 || s.regs.kernel.IP() != 0x2000 || !s.regs.valid {
				t.Errorf("the registers are %s, the kernel's %s, to be written: %v", s.regs.own.IP(), s.regs.kernel.IP(), s.regs.valid)
			}
			if s.stop.Reason != Breakpoint || s.next != nextEntry || s.restartAt != 0x40 || s.trapAt != 0x50 || !s.returned || !s.deciding || !s.lonely {
				t.Errorf("taken back it is %+v", s)
			}
			if kept := s.kept == info; s.injectable != c.wantInjectable || kept == c.wantInjectable || s.inCopy {
				t.Errorf("a signal can be delivered: %v; its siginfo is kept: %v; in a copy: %v", s.injectable, kept, s.inCopy)
			}
		})
	}
}

// TestAStopKeepsWhatWeAreInTheMiddleOf: only what the last stop has told is forgotten.
func TestAStopKeepsWhatWeAreInTheMiddleOf(t *testing.T) {
	s := &standing{halt: halt{injectable: true, inCopy: true, kept: new(Siginfo), unmarked: new(Siginfo)}, next: nextStep, restartAt: 1}
	s.regs.valid = true
	s.halted(Stop{Reason: Signal, Signal: unix.SIGUSR1})
	if s.regs.valid || s.injectable || s.inCopy || s.stop.Signal != unix.SIGUSR1 || s.next != nextStep || s.restartAt != 1 {
		t.Errorf("a new stop: %+v", s)
	}
	if s.left(); s.kept != nil || s.unmarked != nil {
		t.Errorf("left: %+v", s)
	}
}

// TestAContinuedProcessForgetsAStopSignalThatIsKept, and no other.
func TestAContinuedProcessForgetsAStopSignalThatIsKept(t *testing.T) {
	for sig, forgets := range map[unix.Signal]bool{unix.SIGTSTP: true, unix.SIGTTIN: true, unix.SIGTRAP: false, unix.SIGUSR1: false} {
		h := halt{kept: siginfoOf(sig, 0)}
		if h.discardStop(); (h.kept == nil) != forgets {
			t.Errorf("%s is forgotten: %v", unix.SignalName(sig), h.kept == nil)
		}
	}
}

// TestAThreadIsItselfAgainAfterAPanic: what makes system calls of it panics between two of them. It goes on as it was, with its registers and its mask.
func TestAThreadIsItselfAgainAfterAPanic(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	whileHeld(t, tr, func() {}, func() error {
		return p.Space.Freeze(func(*Frozen) error {
			th := p.Leader()
			before, err := th.hostRegs()
			if err != nil {
				return err
			}
			own, at := *before, th.at
			mask, err := th.sigmask()
			if err != nil {
				return err
			}
			func() {
				defer func() {
					if v := recover(); v != "in between" {
						t.Errorf("it panics with %v", v)
					}
				}()
				_ = p.Space.Remote(func(r *Remote) error {
					if _, err := r.Syscall(unix.SYS_GETPID); err != nil {
						return err
					}
					panic("in between")
				})
			}()
			now, err := th.hostRegs()
			if err != nil {
				return err
			}
			blocks, err := th.sigmask()
			if th.at != at || th.at.errand.on || *now != own || blocks != mask {
				t.Errorf("it stands elsewhere: %v; its registers are its own: %v; it blocks %x, before %x", th.at != at, *now == own, blocks, mask)
			}
			return err
		})
	})
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestAnErrorOfACallLeavesTheThreadItself: what makes the system calls fails, early or late.
func TestAnErrorOfACallLeavesTheThreadItself(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "siblings"))
	tr, p := attachKeeper(t, keeper{copied: map[int]*Space{}}, prog.PID())
	defer tr.Close()
	for calls := range 3 {
		whileHeld(t, tr, func() {}, func() error {
			failed := errors.New("it fails")
			err := p.Space.Remote(func(r *Remote) error {
				for range calls {
					if pid, err := r.Syscall(unix.SYS_GETPID); err != nil || int(pid) != prog.PID() {
						t.Errorf("getpid: %d, %v", pid, err)
					}
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Errorf("after %d calls: %v", calls, err)
			}
			return nil
		})
	}
	whileHeld(t, tr, func() {}, func() error { return tr.Detach(p) })
	prog.CheckClean()
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

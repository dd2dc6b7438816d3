package ptrace

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// TestSiginfoLayout compares the accessors with x/sys/unix's struct and the kernel's own
// filling of it.
func TestSiginfoLayout(t *testing.T) {
	var theirs unix.Siginfo
	if unsafe.Sizeof(theirs) != unsafe.Sizeof(Siginfo{}) {
		t.Fatalf("siginfo_t has %d bytes, ours %d", unsafe.Sizeof(theirs), unsafe.Sizeof(Siginfo{}))
	}
	ours := (*Siginfo)(unsafe.Pointer(&theirs))
	for _, code := range []int32{siUser, siTkill, siKernel, -1, trapBrkpt} {
		theirs.Signo, theirs.Code = int32(unix.SIGTRAP), code
		if ours.Signo() != unix.SIGTRAP || ours.Code() != int(code) {
			t.Errorf("signo %d code %d, want %d %d", ours.Signo(), ours.Code(), unix.SIGTRAP, code)
		}
	}
	const addr = arch.Addr(0x7fff_dead_beef)
	ours.SetAddr(addr)
	if got := arch.Addr(*(*uint64)(unsafe.Add(unsafe.Pointer(&theirs), 16))); got != addr || ours.Addr() != addr {
		t.Errorf("si_addr %s, read as %s", got, ours.Addr())
	}
}

// TestWhoRaisedASignal: codes above zero are the kernel's own (sigaction(2)); only of a
// fault's signal do they mean that an instruction raised it.
func TestWhoRaisedASignal(t *testing.T) {
	for _, c := range []struct {
		name              string
		sig               unix.Signal
		code              int32
		synchronous, trap bool
	}{
		{"int3", unix.SIGTRAP, 0x80, true, true},
		{"int1", unix.SIGTRAP, 1, true, false},
		{"single step", unix.SIGTRAP, 2, true, false},
		{"hardware breakpoint", unix.SIGTRAP, 4, true, false},
		{"kill -TRAP", unix.SIGTRAP, 0, false, false},
		{"tgkill -TRAP", unix.SIGTRAP, -6, false, false},
		{"sigqueue of SIGTRAP", unix.SIGTRAP, -1, false, false},
		{"page fault", unix.SIGSEGV, 1, true, false},
		{"general protection fault", unix.SIGSEGV, 0x80, true, false},
		{"kill -SEGV", unix.SIGSEGV, 0, false, false},
		{"division by zero", unix.SIGFPE, 1, true, false},
		{"seccomp's SIGSYS", unix.SIGSYS, 1, true, false},
		{"timer's SIGALRM", unix.SIGALRM, 0x80, false, false},
		{"child's SIGCHLD", unix.SIGCHLD, 1, false, false},
	} {
		var u unix.Siginfo
		u.Signo, u.Code = int32(c.sig), c.code
		s := (*Siginfo)(unsafe.Pointer(&u))
		if s.Synchronous() != c.synchronous || s.breakpoint() != c.trap {
			t.Errorf("%s: synchronous %v, breakpoint %v", c.name, s.Synchronous(), s.breakpoint())
		}
	}
}

func TestFullMask(t *testing.T) {
	all := allSignals &^ unblockable
	for _, c := range []struct {
		name string
		mask Sigset
		want bool
	}{
		{"nothing blocked", 0, false},
		{"everything the kernel lets be blocked", all, true},
		{"sigfillset of glibc", all &^ libcSignals, true},
		{"all bits", allSignals, true},
		{"all but SIGTRAP", all &^ sigbit(unix.SIGTRAP), false},
		{"all but SIGSEGV", all &^ sigbit(unix.SIGSEGV), false},
		{"SIGTRAP alone", sigbit(unix.SIGTRAP), false},
		{"all but the last real-time signal", all &^ sigbit(64), false},
	} {
		if got := c.mask.Full(); got != c.want {
			t.Errorf("%s (%x): full is %v", c.name, uint64(c.mask), got)
		}
	}
	for sig := unix.Signal(1); sig <= 64; sig++ {
		if !sigbit(sig).Has(sig) || (allSignals &^ sigbit(sig)).Has(sig) {
			t.Errorf("bit of signal %d", sig)
		}
	}
}

// TestWhichSignalsAreFaults: those whose instruction has not been executed, and would raise them again.
func TestWhichSignalsAreFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		sig   unix.Signal
		code  int32
		fault bool
	}{
		{"not mapped", unix.SIGSEGV, 1, true},
		{"not permitted", unix.SIGSEGV, 2, true},
		{"a bound check's", unix.SIGSEGV, 3, false},
		{"general protection", unix.SIGSEGV, siKernel, false},
		{"kill -SEGV", unix.SIGSEGV, siUser, false},
		{"alignment", unix.SIGBUS, 1, true},
		{"behind a file's end", unix.SIGBUS, 2, true},
		{"memory that is broken", unix.SIGBUS, 4, false},
		{"no instruction", unix.SIGILL, 2, true},
		{"kill -ILL", unix.SIGILL, siTkill, false},
		{"division", unix.SIGFPE, 1, true},
		{"the kernel's", unix.SIGFPE, siKernel, false},
		{"a breakpoint", unix.SIGTRAP, siKernel, false},
		{"seccomp", unix.SIGSYS, 1, false},
	} {
		if got := siginfoOf(c.sig, c.code).fault(); got != c.fault {
			t.Errorf("%s: %v, want %v", c.name, got, c.fault)
		}
	}
}

// TestTrapsAreToldApart by their codes: a breakpoint's, a step's, and what others send.
func TestTrapsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		sig              unix.Signal
		code             int32
		breakpoint, step bool
	}{
		{unix.SIGTRAP, siKernel, true, false}, {unix.SIGTRAP, trapTrace, false, true}, {unix.SIGTRAP, trapBrkpt, false, false},
		{unix.SIGTRAP, siUser, false, false}, {unix.SIGSEGV, siKernel, false, false}, {unix.SIGILL, trapTrace, false, false},
	} {
		info := siginfoOf(c.sig, c.code)
		if info.Breakpoint() != c.breakpoint || info.SingleStep() != c.step {
			t.Errorf("signal %d, code %d: a breakpoint's %v, a step's %v", c.sig, c.code, info.Breakpoint(), info.SingleStep())
		}
	}
}

// TestMarksAreTakenAway: what a guard is told is none of the program's business, and nothing else is changed.
func TestMarksAreTakenAway(t *testing.T) {
	info := siginfoOf(unix.SIGTRAP, siKernel)
	plain := *info
	if info.unmarkOwn(); *info != plain {
		t.Error("what was not marked has been changed")
	}
	info.markOwn()
	if *info == plain || info.Marked() || !info.Breakpoint() {
		t.Errorf("marked it is % x", info[:24])
	}
	if info.unmarkOwn(); *info != plain {
		t.Errorf("afterwards it is % x", info[:24])
	}
	info[4], info[5] = MarkErrno&0xff, MarkErrno>>8
	if info.unmarkOwn(); !info.Marked() {
		t.Error("another mark was taken away")
	}
}

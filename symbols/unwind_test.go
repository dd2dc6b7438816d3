package symbols

import (
	"encoding/binary"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// testRegs gives the unwinder what it asks of arch.Regs.
type testRegs struct {
	arch.Regs
	r unix.PtraceRegs
}

func (t *testRegs) IP() arch.Addr { return arch.Addr(t.r.Rip) }
func (t *testRegs) SP() arch.Addr { return arch.Addr(t.r.Rsp) }
func (t *testRegs) Get(name string) (uint64, bool) {
	v, ok := map[string]uint64{
		"rax": t.r.Rax, "rbx": t.r.Rbx, "rcx": t.r.Rcx, "rdx": t.r.Rdx, "rsi": t.r.Rsi, "rdi": t.r.Rdi,
		"rbp": t.r.Rbp, "rsp": t.r.Rsp, "r8": t.r.R8, "r9": t.r.R9, "r10": t.r.R10, "r11": t.r.R11,
		"r12": t.r.R12, "r13": t.r.R13, "r14": t.r.R14, "r15": t.r.R15, "rip": t.r.Rip,
	}[name]
	return v, ok
}

func (t *testRegs) Arg(n int) (uint64, bool) {
	return t.Get([]string{"rdi", "rsi", "rdx", "rcx", "r8", "r9"}[n])
}

// tracee is a process under this thread's ptrace.
type tracee struct {
	t   *testing.T
	pid int
	tab *Table
	mem ptraceMem
}

type ptraceMem struct{ pid int }

func (m ptraceMem) ReadMemory(at arch.Addr, p []byte) error {
	n, err := unix.PtracePeekData(m.pid, uintptr(at), p)
	if err != nil || n != len(p) {
		return &arch.FaultError{Addr: at, Cause: err}
	}
	return nil
}

func (m ptraceMem) WriteMemory(at arch.Addr, p []byte) error {
	_, err := unix.PtracePokeData(m.pid, uintptr(at), p)
	return err
}

// trace starts prog and runs it to the first instruction of function spec.
func trace(t *testing.T, prog, spec string) *tracee {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	cmd := exec.Command(prog)
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := &tracee{t: t, pid: cmd.Process.Pid, mem: ptraceMem{cmd.Process.Pid}}
	t.Cleanup(func() {
		unix.Kill(x.pid, unix.SIGKILL)
		unix.Wait4(x.pid, nil, unix.WALL, nil)
	})
	x.wait()
	first, err := Open(x.pid, x.mem)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	x.runTo(one(t, first, spec).Addr)
	if x.tab, err = Open(x.pid, x.mem); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.tab.Close() })
	return x
}

func (x *tracee) wait() unix.WaitStatus {
	x.t.Helper()
	var ws unix.WaitStatus
	if _, err := unix.Wait4(x.pid, &ws, unix.WALL, nil); err != nil {
		x.t.Fatal(err)
	}
	if !ws.Stopped() {
		x.t.Fatalf("the program ended: status %#x", uint32(ws))
	}
	return ws
}

func (x *tracee) regs() *testRegs {
	x.t.Helper()
	r := &testRegs{}
	if err := unix.PtraceGetRegs(x.pid, &r.r); err != nil {
		x.t.Fatal(err)
	}
	return r
}

// runTo continues to a, passing signals on, and leaves IP at a.
func (x *tracee) runTo(a arch.Addr) {
	x.t.Helper()
	var old [1]byte
	if err := x.mem.ReadMemory(a, old[:]); err != nil {
		x.t.Fatal(err)
	}
	x.mem.WriteMemory(a, []byte{0xcc})
	sig := 0
	for {
		if err := unix.PtraceCont(x.pid, sig); err != nil {
			x.t.Fatal(err)
		}
		ws := x.wait()
		if ws.StopSignal() == unix.SIGTRAP {
			break
		}
		sig = int(ws.StopSignal())
	}
	x.mem.WriteMemory(a, old[:])
	r := x.regs()
	r.r.Rip--
	if arch.Addr(r.r.Rip) != a {
		x.t.Fatalf("stopped at %#x, want %v", r.r.Rip, a)
	}
	if err := unix.PtraceSetRegs(x.pid, &r.r); err != nil {
		x.t.Fatal(err)
	}
}

// shadow follows a stepped thread's calls and returns, without any table: a
// call pushes the address behind it, a slot above the stack pointer is gone.
type shadow []struct{ slot, ret uint64 }

func (s *shadow) update(before, after *testRegs, m arch.Memory) {
	const otherStack = 1 << 14
	if d := int64(after.r.Rsp - before.r.Rsp); d > otherStack || d < -otherStack {
		*s = nil
	}
	for len(*s) > 0 && (*s)[len(*s)-1].slot < after.r.Rsp {
		*s = (*s)[:len(*s)-1]
	}
	if after.r.Rsp != before.r.Rsp-8 {
		return
	}
	var b [8]byte
	if m.ReadMemory(arch.Addr(after.r.Rsp), b[:]) != nil {
		return
	}
	ret := binary.LittleEndian.Uint64(b[:])
	if n := ret - before.r.Rip; n >= 2 && n <= 8 && after.r.Rip != ret {
		*s = append(*s, struct{ slot, ret uint64 }{after.r.Rsp, ret})
	}
}

func TestBacktraceIsRightAtEveryInstruction(t *testing.T) {
	for _, c := range []struct {
		name, src string
		flags     []string
		start     string
		steps     int
	}{
		{"optimized", "stack.c", []string{"-O2", "-fomit-frame-pointer", "-Wl,-z,lazy"}, "work", 6000},
		{"not optimized", "stack.c", []string{"-O0"}, "work", 6000},
		{"bound at start", "stack.c", []string{"-O2", "-Wl,-z,now"}, "work", 6000},
		{"static", "stack.c", []string{"-O2", "-static"}, "work", 6000},
		{"Go", "stack.go", nil, "main.work", 3000},
		{"stripped Go", "stack.go", []string{"-ldflags=-s -w"}, "main.work", 3000},
		{"Go PIE", "stack.go", []string{"-buildmode=pie", "-ldflags=-s -w"}, "main.work", 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := trace(t, build(t, c.src, c.flags...), c.start)
			var calls shadow
			before := x.regs()
			bad := 0
			for i := range c.steps {
				if err := unix.PtraceSingleStep(x.pid); err != nil {
					t.Fatal(err)
				}
				if x.wait().StopSignal() != unix.SIGTRAP {
					break
				}
				after := x.regs()
				calls.update(before, after, x.mem)
				before = after
				got := x.tab.Backtrace(after, x.mem, len(calls)+3)
				if why := compareStack(got, calls); why != "" {
					loc, _ := x.tab.Lookup(after.IP())
					t.Errorf("step %d, at %v (%v): %s", i, after.IP(), loc, why)
					if bad++; bad > 5 {
						t.FailNow()
					}
				}
				if i > 100 && len(calls) == 0 && after.r.Rip == 0 {
					break
				}
			}
		})
	}
}

func compareStack(got []Frame, calls shadow) string {
	if len(got) < len(calls)+1 {
		return "too short"
	}
	for i := range calls {
		want := calls[len(calls)-1-i]
		if got[i+1].Addr != arch.Addr(want.ret) {
			return "frame is " + got[i+1].Addr.String() + ", want " + arch.Addr(want.ret).String()
		}
		if got[i].CFA != arch.Addr(want.slot+8) {
			return "CFA is " + got[i].CFA.String() + ", want " + arch.Addr(want.slot+8).String()
		}
	}
	return ""
}

func TestBacktraceGoesThroughASignalHandlerToTheStart(t *testing.T) {
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-static"}} {
		x := trace(t, build(t, "stack.c", flags...), "marker")
		names := []string{}
		signals := 0
		for _, f := range x.tab.Backtrace(x.regs(), x.mem, 50) {
			names = append(names, f.Symbol.Name)
			if f.Signal {
				signals++
			}
		}
		all := strings.Join(names, " ")
		if !strings.HasPrefix(all, "marker handler ") || !strings.Contains(all, "raise") || !strings.Contains(all, "main") ||
			names[len(names)-1] != "_start" || signals != 1 {
			t.Errorf("%v: backtrace is %q with %d signal frames", flags, names, signals)
		}
	}
}

func TestACallThatNeverReturnsBelongsToItsCaller(t *testing.T) {
	x := trace(t, build(t, "stack.c", "-O1", "-fno-toplevel-reorder"), "stop")
	frames := x.tab.Backtrace(x.regs(), x.mem, 3)
	if len(frames) != 3 || frames[1].Symbol.Name != "last" || frames[2].Symbol.Name != "main" {
		t.Errorf("backtrace is %v", frames)
	}
}

package returns

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// naive follows calls by rewriting their return addresses: the breakpoint at a function's
// entry puts a trampoline's address in the place of the true one, which it keeps in a list
// of the thread's. As in uretprobes, records of frames that lie below the stack pointer are
// discarded, and a thread that reaches the trampoline without a record gets a SIGILL.
type naive struct {
	pid     int
	base    uint64 // of the executable
	tramp   uint64 // where the program begins, which nobody comes back to
	entries []uint64
	saved   map[uint64]byte
	stacks  map[int][]record // by thread
	begun   bool
	returns int
}

type record struct{ slot, ret uint64 }

// runNaive runs the program with its input under the naive tracer, and returns what it
// printed, how it ended, and how many returns were seen.
// A program that the tracer has broken may hang for so long.
func runNaive(t testing.TB, args []string, input string, functions []string, hangs time.Duration) (out string, end unix.WaitStatus, returns int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out")
	stdout, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fmt.Fprint(w, input)
	w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()

	runtime.LockOSThread() // ptrace and wait4 are one thread's
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{Files: []*os.File{r, stdout, null}, Sys: &unix.SysProcAttr{Ptrace: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	defer time.AfterFunc(hangs, func() { _ = p.Kill() }).Stop()
	n := &naive{pid: p.Pid, saved: map[uint64]byte{}, stacks: map[int][]record{}}
	end, err = n.run(args[0], functions)
	if err != nil {
		_ = p.Kill()
		t.Fatalf("naive tracer: %v", err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), end, n.returns
}

func (n *naive) run(bin string, functions []string) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(n.pid, &ws, unix.WALL, nil); err != nil {
		return ws, err
	}
	if err := unix.PtraceSetOptions(n.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return ws, err
	}
	if err := n.find(bin, functions); err != nil {
		return ws, err
	}
	n.patch(n.tramp)
	for tid, sig := n.pid, 0; ; {
		_ = unix.PtraceCont(tid, sig) // it may have been killed
		var err error
		if tid, err = unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil); err == unix.ECHILD {
			return unix.WaitStatus(unix.SIGKILL), nil // its end was seen in a step
		} else if err != nil {
			return ws, err
		}
		sig = 0
		switch {
		case tid == n.pid && (ws.Exited() || ws.Signaled()):
			return ws, nil
		case !ws.Stopped():
		case ws.StopSignal() == unix.SIGTRAP && ws.TrapCause() == 0:
			sig = n.trap(tid)
		case ws.StopSignal() != unix.SIGTRAP && ws.StopSignal() != unix.SIGSTOP:
			sig = int(ws.StopSignal())
		}
	}
}

// find looks the functions up in the executable.
func (n *naive) find(bin string, functions []string) error {
	f, err := elf.Open(bin)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Type == elf.ET_DYN {
		maps, err := procfs.Maps(n.pid)
		if err != nil {
			return err
		}
		n.base = uint64(maps[0].Range.Start)
	}
	n.tramp = n.base + f.Entry
	symbols, err := f.Symbols()
	for _, s := range symbols {
		for _, name := range functions {
			if s.Name == name && s.Section != elf.SHN_UNDEF {
				n.entries = append(n.entries, n.base+s.Value)
			}
		}
	}
	return err
}

func (n *naive) peek(at uint64) uint64 {
	var b [8]byte
	_, _ = unix.PtracePeekData(n.pid, uintptr(at), b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func (n *naive) patch(at uint64) {
	n.saved[at] = byte(n.peek(at))
	_, _ = unix.PtracePokeText(n.pid, uintptr(at), []byte{0xcc})
}

// trap handles a SIGTRAP and returns the signal to deliver.
func (n *naive) trap(tid int) int {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return 0
	}
	at := regs.Rip - 1
	switch {
	case at == n.tramp && n.begun:
		return n.returned(tid, &regs)
	case at == n.tramp:
		n.begun = true
		for _, e := range n.entries {
			n.patch(e)
		}
	case n.saved[at] == 0:
		return int(unix.SIGTRAP)
	default:
		n.entered(tid, &regs)
	}
	return n.step(tid, at, &regs)
}

func (n *naive) entered(tid int, regs *unix.PtraceRegs) {
	var b [8]byte
	if _, err := unix.PtracePeekData(tid, uintptr(regs.Rsp), b[:]); err != nil {
		return
	}
	n.stacks[tid] = append(n.stacks[tid], record{regs.Rsp, binary.LittleEndian.Uint64(b[:])})
	_, _ = unix.PtracePokeData(tid, uintptr(regs.Rsp), binary.LittleEndian.AppendUint64(nil, n.tramp))
}

func (n *naive) returned(tid int, regs *unix.PtraceRegs) int {
	list := n.stacks[tid]
	for len(list) > 0 && list[len(list)-1].slot+8 < regs.Rsp {
		list = list[:len(list)-1]
	}
	if len(list) == 0 {
		return int(unix.SIGILL)
	}
	n.returns++
	regs.Rip = list[len(list)-1].ret
	n.stacks[tid] = list[:len(list)-1]
	_ = unix.PtraceSetRegs(tid, regs)
	return 0
}

// step runs the original instruction in its place, and returns a signal that came meanwhile.
func (n *naive) step(tid int, at uint64, regs *unix.PtraceRegs) (sig int) {
	regs.Rip = at
	_ = unix.PtraceSetRegs(tid, regs)
	_, _ = unix.PtracePokeText(tid, uintptr(at), []byte{n.saved[at]})
	for unix.PtraceSingleStep(tid) == nil {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(tid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() || ws.StopSignal() == unix.SIGTRAP {
			break
		}
		sig = int(ws.StopSignal())
	}
	_, _ = unix.PtracePokeText(tid, uintptr(at), []byte{0xcc})
	return sig
}

// describe says how a program ended.
func describe(out string, ws unix.WaitStatus) string {
	last := out[strings.LastIndexByte(strings.TrimSuffix(out, "\n"), '\n')+1:]
	switch {
	case ws.Signaled() && ws.Signal() == unix.SIGKILL:
		return "hangs"
	case ws.Signaled():
		return "dies of " + unix.SignalName(ws.Signal())
	}
	return fmt.Sprintf("exits with %d, saying %q", ws.ExitStatus(), strings.TrimSpace(last))
}

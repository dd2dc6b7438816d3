package amd64_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// Where a cpu's memory is. All of it lies below 4 GiB, so that 32-bit addresses
// reach it, and each area is followed by a hole.
const (
	codeAt  = 0x40000000
	dataAt  = 0x50000000
	stackAt = 0x50100000
	slotAt  = 0x60000000
	area    = 0x10000
)

// cpu is a stopped process that lends its processor: the oracle for what an
// instruction does.
type cpu struct {
	t   testing.TB
	pid int
}

// newCPU starts one, whose first file, if there is one, is number sharedFile there.
func newCPU(t testing.TB, files ...*os.File) *cpu {
	t.Helper()
	requires(t, "true")
	runtime.LockOSThread()
	cmd := exec.Command("true")
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot trace a child: %v", err)
	}
	c := &cpu{t, cmd.Process.Pid}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		runtime.UnlockOSThread()
	})
	c.wait()
	for _, at := range []uint64{codeAt, dataAt, stackAt, slotAt} {
		c.mmap(at)
	}
	return c
}

func (c *cpu) wait() unix.Signal {
	c.t.Helper()
	var status unix.WaitStatus
	if _, err := unix.Wait4(c.pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		c.t.Fatalf("wait: status %#x, %v", status, err)
	}
	return status.StopSignal()
}

// regs reads the registers.
func (c *cpu) regs() amd64.Regs {
	c.t.Helper()
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(c.pid, &r); err != nil {
		c.t.Fatal(err)
	}
	return *(*amd64.Regs)(unsafe.Pointer(&r))
}

// step runs one instruction from r and returns what became of the registers and
// the signal, SIGTRAP if it completed.
func (c *cpu) step(r amd64.Regs) (amd64.Regs, unix.Signal) {
	c.t.Helper()
	if err := unix.PtraceSetRegs(c.pid, (*unix.PtraceRegs)(unsafe.Pointer(&r))); err != nil {
		c.t.Fatal(err)
	}
	var sig unix.Signal
	var out amd64.Regs
	if n := c.lenCPUID(r.IP()); n > 0 {
		sig, out = c.runTo(r.IP().Add(int64(n)))
	} else {
		if err := unix.PtraceSingleStep(c.pid); err != nil {
			c.t.Fatal(err)
		}
		sig = c.wait()
		out = c.regs()
	}
	const trapAndResume = 1<<8 | 1<<16
	out.Eflags &^= trapAndResume
	out.Orig_rax = r.Orig_rax
	return out, sig
}

// lenCPUID is the length of a cpuid at at, or 0. A hypervisor that emulates it may report no
// single step after it: then the instruction behind it is executed as well, in place and
// in every copy.
func (c *cpu) lenCPUID(at arch.Addr) int {
	const most = 15
	b := make([]byte, most)
	for len(b) > 0 && c.ReadMemory(at, b) != nil {
		b = b[:len(b)-1]
	}
	for n := range b {
		switch {
		case bytes.IndexByte([]byte{0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65}, b[n]) >= 0, b[n]&0xf0 == 0x40:
		case n+1 < len(b) && b[n] == 0x0f && b[n+1] == 0xa2:
			return n + 2
		default:
			return 0
		}
	}
	return 0
}

// runTo runs the process to a breakpoint at end, as if it were a single step that ends there.
func (c *cpu) runTo(end arch.Addr) (unix.Signal, amd64.Regs) {
	c.t.Helper()
	was := c.get(end, 1)
	c.put(end, []byte{0xcc})
	defer c.put(end, was)
	if err := unix.PtraceCont(c.pid, 0); err != nil {
		c.t.Fatal(err)
	}
	sig := c.wait()
	out := c.regs()
	if sig == unix.SIGTRAP && out.IP() == end.Add(1) {
		out.SetIP(end)
	}
	return sig, out
}

// mmap maps an area, readable, writable and executable.
func (c *cpu) mmap(at uint64) {
	c.t.Helper()
	c.mmapWith(at, [6]uint64{at, area, unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC,
		unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED, ^uint64(0), 0})
}

// sharedFile is the first file that newCPU was given.
const sharedFile = 3

// mmapFile maps n bytes of that file, readable and writable, so that what the one writes is there for the other.
func (c *cpu) mmapFile(at uint64, n int) {
	c.t.Helper()
	c.mmapWith(at, [6]uint64{at, uint64(n), unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_FIXED, sharedFile, 0})
}

// sharedMemory is n bytes of a file that a cpu can map as well.
func sharedMemory(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "shared")
	t.Cleanup(func() { file.Close() })
	if err := file.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return file, mem
}

func (c *cpu) mmapWith(at uint64, args [6]uint64) {
	c.t.Helper()
	r := c.regs()
	saved := r
	if _, err := unix.PtracePokeText(c.pid, uintptr(r.Rip), amd64.Arch{}.SyscallInsn()); err != nil {
		c.t.Fatal(err)
	}
	r.SetSyscall(unix.SYS_MMAP, args, r.IP())
	if out, _ := c.step(r); out.Rax != at {
		c.t.Fatalf("mmap at %#x: %#x", at, out.Rax)
	}
	c.step(saved)
}

// ReadMemory obeys the target's own page protections, as arch.Memory asks.
func (c *cpu) ReadMemory(at arch.Addr, p []byte) error {
	local := []unix.Iovec{{Base: &p[0], Len: uint64(len(p))}}
	n, err := unix.ProcessVMReadv(c.pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(p)}}, 0)
	if err != nil || n != len(p) {
		return &arch.FaultError{Addr: at, Cause: fmt.Errorf("%d bytes: %w", n, err)}
	}
	return nil
}

// WriteMemory writes all of p or nothing that a test looks at.
func (c *cpu) WriteMemory(at arch.Addr, p []byte) error {
	local := []unix.Iovec{{Base: &p[0], Len: uint64(len(p))}}
	n, err := unix.ProcessVMWritev(c.pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(p)}}, 0)
	if err != nil || n != len(p) {
		return &arch.FaultError{Addr: at, Write: true, Cause: fmt.Errorf("%d bytes: %w", n, err)}
	}
	return nil
}

func (c *cpu) put(at arch.Addr, p []byte) {
	c.t.Helper()
	if err := c.WriteMemory(at, p); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cpu) get(at arch.Addr, n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if err := c.ReadMemory(at, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// overlay is a cpu's memory whose writes stay here.
type overlay struct {
	*cpu
	at      arch.Addr
	written []byte
}

func (o *overlay) WriteMemory(at arch.Addr, p []byte) error {
	if err := o.ReadMemory(at, make([]byte, len(p))); err != nil { // the areas are writable
		return &arch.FaultError{Addr: at, Write: true, Cause: err}
	}
	o.at, o.written = at, append([]byte(nil), p...)
	return nil
}

const arithmeticFlags = 0x8d5 | 1<<10 // CF PF AF ZF SF OF, DF

// randomRegs are registers of which some point into data and some are small, so
// that base plus scaled index is a good address often.
func randomRegs(rnd *rand.Rand, like amd64.Regs) amd64.Regs {
	r := like
	for _, name := range r.Names() {
		switch name {
		case "rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "orig_rax":
			continue
		}
		v := uint64(rnd.IntN(64))
		switch rnd.IntN(3) {
		case 0:
			v = dataAt + 0x8000 + uint64(rnd.IntN(0x1000))
		case 1:
			v = uint64(rnd.IntN(4))
		}
		r.Set(name, v)
	}
	r.Rsp = stackAt + 0x8000 + uint64(rnd.IntN(0x100))
	switch rnd.IntN(20) {
	case 0:
		r.Rsp = 0x1000
	case 1:
		r.Rsp = stackAt // a push leaves the area
	case 2:
		r.Rsp = stackAt + area // a pop does
	}
	r.Eflags = 0x202 | rnd.Uint64()&arithmeticFlags
	return r
}

// randomData is memory in which many 8-byte words are canonical addresses.
func randomData(rnd *rand.Rand) []byte {
	b := make([]byte, area)
	for i := range b {
		if rnd.IntN(4) == 0 {
			b[i] = byte(rnd.Uint32())
		}
	}
	return b
}

func pick[T any](rnd *rand.Rand, s ...T) T { return s[rnd.IntN(len(s))] }

// randomBranch is the bytes of a near branch, maybe one that Decode refuses.
func randomBranch(rnd *rand.Rand) []byte {
	var b []byte
	for range rnd.IntN(3) {
		b = append(b, pick[byte](rnd, 0x2e, 0x3e, 0x36, 0x26, 0x64, 0x65, 0x67, 0xf2, 0xf3))
	}
	rex := byte(0x40 | rnd.IntN(16))
	if rnd.IntN(8) == 0 {
		b = append(b, 0x66)
		rex |= 8
		b = append(b, rex)
	} else if rnd.IntN(2) == 0 {
		b = append(b, rex)
	}
	rel8, rel32 := byte(rnd.Uint32()), binary.LittleEndian.AppendUint32(nil, rnd.Uint32()%0x30000000)
	switch rnd.IntN(10) {
	case 0:
		return append(b, byte(0x70|rnd.IntN(16)), rel8)
	case 1:
		return append(append(b, 0x0f, byte(0x80|rnd.IntN(16))), rel32...)
	case 2:
		return append(b, 0xeb, rel8)
	case 3:
		return append(append(b, pick[byte](rnd, 0xe8, 0xe9)), rel32...)
	case 4, 5:
		return append(b, byte(0xe0|rnd.IntN(4)), rel8)
	case 6:
		return append(b, 0xc3)
	case 7:
		return append(b, 0xc2, rel8, byte(rnd.IntN(2)))
	}
	return append(b, randomOperand(rnd, pick[byte](rnd, 2, 4))...)
}

// randomOperand is opcode ff with a random r/m operand.
func randomOperand(rnd *rand.Rand, digit byte) []byte {
	b := []byte{0xff, byte(rnd.IntN(4))<<6 | digit<<3 | byte(rnd.IntN(8))}
	mod, rm, base := b[1]>>6, b[1]&7, byte(0)
	if mod == 3 {
		return b
	}
	if rm == 4 {
		sib := byte(rnd.Uint32())
		b = append(b, sib)
		base = sib & 7
	}
	absolute := uint32(dataAt + 0x8000 + rnd.IntN(0x1000))
	switch {
	case mod == 1:
		return append(b, byte(rnd.Uint32()))
	case mod == 0 && rm == 5:
		return binary.LittleEndian.AppendUint32(b, absolute-codeAt-uint32(rnd.IntN(64)))
	case mod == 0 && rm == 4 && base == 5:
		return binary.LittleEndian.AppendUint32(b, absolute)
	case mod == 2:
		return binary.LittleEndian.AppendUint32(b, pick(rnd, absolute, uint32(rnd.IntN(256))))
	}
	return b
}

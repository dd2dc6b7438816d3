package amd64_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// Places in data that linear.S names.
const (
	wordsAt = dataAt + 0x8000
	mxcsrAt = dataAt + 0x4000
	fcwAt   = dataAt + 0x4010
	fsBase  = dataAt + 0x100
)

// linearLines assembles and links testdata/linear.S at codeAt and returns its
// instructions as objdump splits them.
func linearLines(t *testing.T) (lines []line) {
	requires(t, "gcc", "objdump")
	exe := filepath.Join(t.TempDir(), "linear")
	assemble(t, "-nostdlib", "-static", "-no-pie", "-o", exe, "testdata/linear.S",
		fmt.Sprintf("-Wl,-Ttext=%#x,--defsym=data=%#x,--defsym=mxcsr=%#x,--defsym=fcw=%#x,--defsym=fsdata=%#x",
			codeAt, wordsAt, mxcsrAt, fcwAt, wordsAt-fsBase))
	var orphan []byte // prefixes that objdump prints on a line of their own
	objdump(t, exe, func(l line) {
		if noInsn(l.text) {
			orphan = append(orphan, l.bytes...)
			return
		}
		l.addr, l.bytes = l.addr-arch.Addr(len(orphan)), append(orphan, l.bytes...)
		orphan = nil
		lines = append(lines, l)
	})
	return lines
}

// state is everything an instruction can change.
type state struct {
	regs        amd64.Regs
	sig         unix.Signal
	data, stack []byte
	xstate      []byte
}

// regset moves the extended state between p and the process; it returns its size.
func regset(pid int, request int, p []byte) (int, error) {
	const ntX86XState = 0x202
	iov := unix.Iovec{Base: &p[0], Len: uint64(len(p))}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), ntX86XState, uintptr(unsafe.Pointer(&iov)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(iov.Len), nil
}

func (c *cpu) xstate() []byte {
	c.t.Helper()
	p := make([]byte, 1<<15)
	n, err := regset(c.pid, unix.PTRACE_GETREGSET, p)
	if err != nil {
		c.t.Fatal(err)
	}
	return p[:n]
}

func (c *cpu) setXState(p []byte) {
	c.t.Helper()
	if _, err := regset(c.pid, unix.PTRACE_SETREGSET, p); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cpu) load(s *state) {
	c.put(dataAt, s.data)
	c.put(stackAt, s.stack)
	c.setXState(s.xstate)
}

// finish runs the instruction at r's rip to its end (a repeated one takes a step
// per repetition) and returns all that is left.
func (c *cpu) finish(r amd64.Regs) state {
	at := r.Rip
	var s state
	for s.regs, s.sig = c.step(r); s.regs.Rip == at && s.sig == unix.SIGTRAP; {
		s.regs, s.sig = c.step(s.regs)
	}
	s.data, s.stack, s.xstate = c.get(dataAt, area), c.get(stackAt, area), c.xstate()
	forgetX87Address(s.xstate)
	forgetInUse(s.xstate)
	forgetX87Address(s.data[wordsAt-dataAt:]) // fxsave stores it there
	return s
}

// forgetX87Address clears the address of the last x87 instruction (SDM vol. 1
// §8.1.8): the copy's address shows there, as doc.go says.
func forgetX87Address(fxsave []byte) {
	clear(fxsave[8:16])
}

// forgetInUse clears XSTATE_BV. Processors may or may not notice that a component is in its initial
// configuration (XINUSE, SDM vol. 1 §13.6), and differ from one switch of threads to the next; what
// the component holds stands in the area in both cases.
func forgetInUse(xstate []byte) { clear(xstate[512:520]) }

// difference is the first thing in which a and b, which ran at different
// addresses, are not the same; b's ip was translated.
func difference(a, b *state) string {
	switch {
	case a.sig != b.sig:
		return fmt.Sprintf("signal %v, then %v", a.sig, b.sig)
	case a.regs != b.regs:
		return fmt.Sprintf("\nin place %+x\nslot     %+x", a.regs, b.regs)
	case !bytes.Equal(a.data, b.data):
		return "data differs"
	case !bytes.Equal(a.stack, b.stack):
		return "the stack differs"
	case !bytes.Equal(a.xstate, b.xstate):
		return "vector or x87 state differs"
	}
	return ""
}

// linearStart is a state in which linear.S's instructions have good operands.
func linearStart(rnd *rand.Rand, from *state) state {
	s := state{regs: from.regs, data: slices.Clone(from.data), stack: slices.Clone(from.stack), xstate: slices.Clone(from.xstate)}
	for _, p := range []*uint64{&s.regs.Rax, &s.regs.Rdx, &s.regs.R8, &s.regs.R9, &s.regs.R10, &s.regs.R11, &s.regs.R12, &s.regs.R15} {
		*p = rnd.Uint64() >> rnd.IntN(64)
	}
	s.regs.Rcx = uint64(rnd.IntN(8))
	s.regs.Rbx, s.regs.Rsi, s.regs.Rdi = wordsAt+0x400, wordsAt+0x800, wordsAt+0xc00
	s.regs.Rsp, s.regs.Rbp = stackAt+0x8000, stackAt+0x8100
	s.regs.Fs_base, s.regs.Gs_base = fsBase, dataAt+0x200
	s.regs.Orig_rax = ^uint64(0)
	s.regs.Eflags = 0x202 | rnd.Uint64()&arithmeticFlags
	copy(s.data[mxcsrAt-dataAt:], []byte{0x80, 0x1f, 0, 0}) // all exceptions masked
	copy(s.data[fcwAt-dataAt:], []byte{0x7f, 0x03})
	for i := range 256 {
		s.data[wordsAt-dataAt+i] = byte(rnd.Uint32())
	}
	for i := 160; i < 416; i++ { // the xmm registers of the legacy region
		s.xstate[i] = byte(rnd.Uint32()) & 0x3f
	}
	s.xstate[512] |= 3 // x87 and SSE are in use
	return s
}

// slotAgrees runs l's instruction in place and through both entrances of its
// slot and compares all that they leave.
func slotAgrees(c *cpu, l line, start *state) error {
	a := code.Arch{}
	i, err := a.Decode(l.bytes, l.addr)
	if err != nil {
		return err
	}
	p, err := a.Plan(i)
	if err != nil {
		return err
	}
	if p.Method == arch.Emulated || (p.Method == arch.Relocated) != strings.Contains(l.text, "(%rip)") {
		return fmt.Errorf("method %s", p.Method)
	}
	slot, err := a.Assemble(p, slotAt+0x40)
	if err != nil {
		return err
	}
	c.put(slot.Addr, slot.Code)
	c.load(start)
	start.regs.SetIP(l.addr)
	native := c.finish(start.regs)

	c.load(start)
	start.regs.SetIP(slot.Step)
	stepped := c.finish(start.regs)
	if err := settle(slot, &stepped); err != nil {
		return err
	}
	if d := difference(&native, &stepped); d != "" {
		return fmt.Errorf("step: %s", d)
	}
	if slot.Boost == 0 {
		return nil
	}
	c.load(start)
	start.regs.SetIP(slot.Boost)
	boosted := c.finish(start.regs)
	if boosted.sig == unix.SIGTRAP {
		boosted.regs, _ = c.step(boosted.regs) // the way back
	} else if err := settle(slot, &boosted); err != nil {
		return err
	}
	if d := difference(&native, &boosted); d != "" {
		return fmt.Errorf("boost: %s", d)
	}
	return nil
}

// settle moves s from the slot to the place in unprobed code, as Origin says.
func settle(slot *arch.Slot, s *state) error {
	orig, executed, ok := slot.Origin(s.regs.IP())
	if !ok || executed != (s.sig == unix.SIGTRAP) {
		return fmt.Errorf("%v at %s of slot %s: origin %s, executed %t, ok %t", s.sig, s.regs.IP(), slot.Addr, orig, executed, ok)
	}
	s.regs.SetIP(orig)
	return nil
}

func TestACopyDoesWhatTheOriginalDoes(t *testing.T) {
	lines := linearLines(t)
	c := newCPU(t)
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	from := state{regs: c.regs(), data: randomData(rnd), stack: randomData(rnd), xstate: c.xstate()}
	signals := map[unix.Signal]int{}
	for _, l := range lines {
		c.put(l.addr, l.bytes)
	}
	for _, l := range lines {
		for range 3 {
			start := linearStart(rnd, &from)
			if err := slotAgrees(c, l, &start); err != nil {
				t.Errorf("seed %d: %s: % x  %s: %v", seed, l.addr, l.bytes, l.text, err)
				break
			}
			start.regs.SetIP(l.addr)
			c.load(&start)
			sig := c.finish(start.regs).sig
			if signals[sig]++; sig != unix.SIGTRAP {
				t.Logf("%v: %s", sig, l.text)
			}
		}
	}
	t.Log(len(lines), "instructions:", signals)
}

package amd64_test

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// TestWhatDecodeRefusesTheProcessorRefuses runs the cells of the grid that Decode
// takes for no instruction: the processor must raise an invalid-opcode exception. It
// tells nothing of extensions that the processor lacks.
func TestWhatDecodeRefusesTheProcessorRefuses(t *testing.T) {
	c := newCPU(t)
	r := gridRegs(c)
	every := testsize.Rounds(32, 8, 1) // of the vector forms, most of which are no instruction
	code := wholeGrid()
	refused, ran := 0, 0
	for at := 0; at < len(code); at += cell {
		insn := code[at : at+cell]
		_, err := amd64.Arch{}.Decode(insn, codeAt)
		if err == nil || errors.Is(err, arch.ErrOperandSize) || permuteQuads(insn) {
			continue
		}
		refused++
		if vector := insn[0] == 0xc4 || insn[0] == 0x62; vector && refused%every != 0 {
			continue
		}
		c.put(codeAt, insn)
		if _, sig := c.step(r); sig != unix.SIGILL {
			t.Errorf("% x: %v, but the processor raises %s", insn, err, unix.SignalName(sig))
		}
		ran++
	}
	t.Logf("%d cells of %d refused, %d of them run", refused, len(code)/cell, ran)
}

// gridRegs are registers with which a cell's memory operand is in data, unless it is
// relative to rip or has an index.
func gridRegs(c *cpu) amd64.Regs {
	r := c.regs()
	for _, name := range []string{"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10"} {
		r.Set(name, dataAt+0x8000)
	}
	r.Rip, r.Rsp, r.Orig_rax = codeAt, stackAt+0x8000, ^uint64(0)
	return r
}

// TestWhatDecodeAcceptsIsAsLongAsTheProcessorSays runs the cells of the grid that go
// on to what follows them: the instruction pointer then tells the length.
func TestWhatDecodeAcceptsIsAsLongAsTheProcessorSays(t *testing.T) {
	c := newCPU(t)
	r := gridRegs(c)
	code := wholeGrid()
	completed, faulted, unknown := 0, 0, 0
	for at := 0; at < len(code); at += cell {
		i, err := amd64.Arch{}.Decode(code[at:at+cell], codeAt)
		if err != nil || i.Flow != arch.FlowNext || changesTheOracle(i.Bytes) {
			continue
		}
		c.put(codeAt, code[at:at+cell])
		out, sig := c.step(r)
		switch {
		case sig == unix.SIGILL:
			unknown++
		case sig != unix.SIGTRAP:
			faulted++
		case out.IP() != i.End() && out.Rip != codeAt: // a repeated string instruction stays
			t.Errorf("% x: %d bytes, but the processor comes to %s", i.Bytes, i.Len(), out.IP())
		default:
			completed++
		}
	}
	t.Logf("%d completed, %d faulted, %d are not known to this processor", completed, faulted, unknown)
	if completed < 1000 {
		t.Error("too few completed")
	}
}

// changesTheOracle tells that code is of the groups 0f 01 and 0f ae, which change
// what a process may do and what PTRACE_SETREGS does not put back, or of the group
// 0f 00, of which the kernel emulates some and then goes on by one instruction (UMIP).
func changesTheOracle(code []byte) bool {
	i := bytes.IndexByte(code, 0x0f)
	return i >= 0 && i+1 < len(code) && (code[i+1] < 2 || code[i+1] == 0xae)
}

// permuteQuads tells that code is vpermq or vpermpd with a clear W, which SDM vol. 2C
// does not define. Zen 4 runs it.
func permuteQuads(code []byte) bool {
	return code[0] == 0xc4 && code[1]&0x1f == 3 && code[3] < 2 && code[2]&0x87 == 0x05
}

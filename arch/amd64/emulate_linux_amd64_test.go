package amd64_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// between tells that a is canonical with 57 bits and not with 48: what happens
// depends on the paging mode.
func between(a uint64) bool {
	return uint64(int64(a<<7)>>7) == a && uint64(int64(a<<16)>>16) != a
}

var prefixes = regexp.MustCompile(`^((rex(\.[WRXB]+)?|data16|addr(32|64)|repn?|bnd|[cdefgs]s) )*([a-z0-9]+)`)

// mnemonic is the first word of a disassembled instruction, prefixes aside.
func mnemonic(text string) string { return prefixes.FindStringSubmatch(text)[5] }

// emulateOnce compares Emulate with the processor on one branch; it returns the
// mnemonic and the outcome, or "" if the bytes are refused.
func emulateOnce(c *cpu, rnd *rand.Rand, start amd64.Regs) (string, error) {
	a := code.Arch{}
	code := randomBranch(rnd)
	at := arch.Addr(codeAt + 0x8000 + rnd.IntN(64))
	i, err := a.Decode(code, at)
	if err != nil {
		return "", nil
	}
	p, err := a.Plan(i)
	if err != nil {
		return "", fmt.Errorf("% x: %w", code, err)
	}
	before := randomRegs(rnd, start)
	if bytes.Contains(i.Bytes, []byte{0x67}) && rnd.IntN(2) == 0 {
		for _, name := range []string{"rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r15"} {
			v, _ := before.Get(name)
			before.Set(name, v|rnd.Uint64()<<32)
		}
	}
	before.SetIP(at)
	before.Orig_rax = ^uint64(0)
	c.put(at, i.Bytes)
	if p.Method != arch.Emulated {
		native, sig, undo := c.stepUndoably(before)
		return "traced " + mnemonic(a.Disassemble(i)), traceOnce(c, p, before, native, sig, undo)
	}
	emulated := before
	memory := &overlay{cpu: c}
	emulateErr := p.Emulate(&emulated, memory)
	native, sig, undo := c.stepUndoably(before)
	what := mnemonic(a.Disassemble(i))
	if memory.written != nil && sig == unix.SIGTRAP && !bytes.Equal(memory.written, c.get(memory.at, 8)) {
		return what, fmt.Errorf("% x %s: wrote % x", i.Bytes, a.Disassemble(i), memory.written)
	}
	if err := traceOnce(c, p, before, native, sig, undo); err != nil {
		return what, err
	}
	if sig != unix.SIGTRAP {
		var fault *arch.FaultError
		switch {
		case between(emulated.Rip):
			return what + " between", nil
		case !errors.As(emulateErr, &fault):
			return what, fmt.Errorf("% x %s: the processor raises %v, Emulate says %w", i.Bytes, a.Disassemble(i), sig, emulateErr)
		case emulated != before || memory.written != nil:
			return what, fmt.Errorf("% x %s: state changed though Emulate failed", i.Bytes, a.Disassemble(i))
		}
		return what + " fault", nil
	}
	if emulateErr != nil || emulated != native {
		return what, fmt.Errorf("% x %s: %w\nbefore   %+x\nprocessor %+x\nEmulate   %+x", i.Bytes, a.Disassemble(i), emulateErr, before, native, emulated)
	}
	return what, nil
}

// stepUndoably is step; undo puts back the word that a call may have pushed.
func (c *cpu) stepUndoably(r amd64.Regs) (out amd64.Regs, sig unix.Signal, undo func()) {
	word := make([]byte, 8)
	there := c.ReadMemory(r.SP()-8, word) == nil
	out, sig = c.step(r)
	return out, sig, func() {
		if there {
			c.put(r.SP()-8, word)
		}
	}
}

// traceOnce single-steps the copy of a branch from before, resumes it, and compares the
// outcome with the processor's own: native, sig, and what lies on the stack.
// The copy must find the memory that the original found: undo sees to that.
func traceOnce(c *cpu, p arch.Plan, before, native amd64.Regs, sig unix.Signal, undo func()) error {
	a := code.Arch{}
	slot, err := a.Assemble(p, slotAt+0x1000)
	if err != nil {
		return err
	}
	c.put(slot.Addr, slot.Code)
	word := make([]byte, 8)
	onStack := c.ReadMemory(native.SP(), word) == nil
	undo()
	before.SetIP(slot.Step)
	traced, tracedSig := c.step(before)
	if tracedSig != sig {
		return fmt.Errorf("% x %s: %v, its copy raises %v", p.Insn.Bytes, a.Disassemble(p.Insn), sig, tracedSig)
	}
	if sig != unix.SIGTRAP {
		if orig, executed, ok := slot.Origin(traced.IP()); ok && !executed {
			traced.SetIP(orig)
		}
	} else if err := p.Resume(&traced, c, slot.Step); err != nil {
		return fmt.Errorf("% x %s: %w", p.Insn.Bytes, a.Disassemble(p.Insn), err)
	}
	if traced != native || onStack && !bytes.Equal(word, c.get(native.SP(), 8)) {
		return fmt.Errorf("% x %s: %v\nin place %+x\ncopy     %+x", p.Insn.Bytes, a.Disassemble(p.Insn), sig, native, traced)
	}
	return nil
}

func TestEmulatedBranchesDoWhatTheProcessorDoes(t *testing.T) {
	n := testsize.Rounds(6000, 60000, 1_200_000)
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := newCPU(t)
	start := c.regs()
	c.put(dataAt, randomData(rnd))
	c.put(stackAt, randomData(rnd))
	seen := map[string]int{}
	for range n {
		what, err := emulateOnce(c, rnd, start)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		seen[what]++
	}
	t.Log(seen)
	for _, what := range []string{"jmp", "jmpq", "callq", "retq", "loop", "loope", "loopne", "jrcxz", "jecxz", "jmpq fault", "callq fault", "retq fault",
		"jo", "jno", "jb", "jae", "je", "jne", "jbe", "ja", "js", "jns", "jp", "jnp", "jl", "jge", "jle", "jg"} {
		if seen[what] == 0 {
			t.Errorf("%s never came up", what)
		}
	}
}

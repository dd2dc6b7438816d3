package amd64_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

const (
	detourAt = slotAt + 0x2000
	cellsAt  = slotAt + 0x8000
	nCells   = 4
)

// counted is the sum of the counters.
func (c *cpu) counted() (sum uint64) {
	b := c.get(cellsAt, 64*nCells)
	for k := range nCells {
		sum += binary.LittleEndian.Uint64(b[64*k:])
	}
	return sum
}

// through runs d from r until the thread has left it or got a signal. What d says about the
// places on the way must be right.
func (c *cpu) through(d *arch.Detour, r amd64.Regs, dead arch.Dead) (amd64.Regs, unix.Signal, error) {
	start, started := r, false
	r.SetIP(d.Addr)
	for range 1000 {
		var sig unix.Signal
		r, sig = c.step(r)
		orig, pop, ok := d.Original(r.IP())
		switch {
		case sig != unix.SIGTRAP:
			if ok {
				r.SetIP(orig)
				r.SetSP(r.SP().Add(int64(pop)))
			}
			return r, sig, nil
		case !d.Range().Contains(r.IP()):
			return r, sig, nil
		case r.IP() >= d.Start() && !ok:
			return r, sig, fmt.Errorf("a thread stands at %s", r.IP())
		case r.IP() == d.Start() && !started:
			started = true // a repeated instruction stays there
			if diff := changed(start, r, dead); diff != "" {
				return r, sig, errors.New(diff)
			}
		}
	}
	return r, 0, errors.New("does not end")
}

var encodingOrder = []string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// changed names a register that is not dead and that the body has changed.
func changed(before, after amd64.Regs, dead arch.Dead) string {
	for n, name := range encodingOrder {
		was, _ := before.Get(name)
		is, _ := after.Get(name)
		if was != is && dead.Regs>>n&1 == 0 {
			return fmt.Sprintf("the body makes %#x of %s %#x", is, name, was)
		}
	}
	if before.Eflags != after.Eflags && !dead.Flags {
		return fmt.Sprintf("the body makes %#x of the flags %#x", after.Eflags, before.Eflags)
	}
	return ""
}

// detourAgrees runs i in place and through a detour and compares all that they leave.
func detourAgrees(c *cpu, i arch.Insn, start *state, dead arch.Dead, n int) error {
	a := code.Arch{}
	d, err := a.AssembleDetour(detourAt, []arch.Insn{i}, a.CountBody(cellsAt, n, dead, true))
	if err != nil {
		return err
	}
	c.put(d.Addr, d.Code)
	c.load(start)
	start.regs.SetIP(i.Addr)
	native := c.finish(start.regs)

	c.load(start)
	was := c.counted()
	var s state
	if s.regs, s.sig, err = c.through(d, start.regs, dead); err != nil {
		return err
	}
	if now := c.counted(); now != was+1 {
		return fmt.Errorf("%d hits counted", now-was)
	}
	s.data, s.stack, s.xstate = c.get(dataAt, area), c.get(stackAt, area), c.xstate()
	forgetX87Address(s.xstate)
	forgetInUse(s.xstate)
	forgetX87Address(s.data[wordsAt-dataAt:])
	below := int(start.regs.Rsp) - 128 - 24 - stackAt
	copy(s.stack[below:below+24], native.stack[below:])
	if s.sig != unix.SIGTRAP { // a call may have pushed before it failed
		copy(s.stack[below+24+120:][:8], native.stack[below+24+120:])
	}
	if diff := difference(&native, &s); diff != "" {
		return errors.New(diff)
	}
	return nil
}

func TestDetourDoesWhatTheOriginalDoes(t *testing.T) {
	lines := linearLines(t)
	c := newCPU(t)
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	from := state{regs: c.regs(), data: randomData(rnd), stack: randomData(rnd), xstate: c.xstate()}
	for _, l := range lines {
		c.put(l.addr, l.bytes)
	}
	n := 0
	for _, l := range lines {
		i, err := code.Arch{}.Decode(l.bytes, l.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := (code.Arch{}).Displaceable(i); err != nil {
			t.Log(err)
			continue
		}
		n++
		for range 3 {
			start := linearStart(rnd, &from)
			if err := detourAgrees(c, i, &start, arch.Dead{}, pick(rnd, 1, nCells)); err != nil {
				t.Errorf("seed %d: %s: % x  %s: %v", seed, l.addr, l.bytes, l.text, err)
				break
			}
		}
	}
	t.Log(n, "of", len(lines), "instructions")
}

func TestDetourOfBranchDoesWhatTheOriginalDoes(t *testing.T) {
	seed := testprog.Seed(t, 1)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := newCPU(t)
	from := c.regs()
	c.put(dataAt, randomData(rnd))
	c.put(stackAt, randomData(rnd))
	seen := map[string]int{}
	for range 10000 {
		what, err := branchAgrees(c, rnd, from)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		seen[what]++
	}
	t.Log(seen)
	for _, what := range []string{"jmp", "jmpq", "callq", "retq", "loop", "loope", "loopne", "jrcxz", "jecxz", "jmpq fault", "callq fault", "retq fault"} {
		if seen[what] == 0 {
			t.Errorf("%s never came up", what)
		}
	}
}

// branchAgrees compares one random branch with its detour.
func branchAgrees(c *cpu, rnd *rand.Rand, from amd64.Regs) (string, error) {
	a := code.Arch{}
	at := arch.Addr(codeAt + 0x8000 + rnd.IntN(64))
	i, err := a.Decode(randomBranch(rnd), at)
	if err != nil || a.Displaceable(i) != nil {
		return "", nil
	}
	r := randomRegs(rnd, from)
	r.Rsp = stackAt + 0x8000 + uint64(rnd.IntN(0x100))
	r.Orig_rax = ^uint64(0)
	r.SetIP(at)
	c.put(at, i.Bytes)
	what := mnemonic(a.Disassemble(i))
	dead := pick(rnd, deads...)
	dead.Regs = 0 // the branch may need them
	d, err := a.AssembleDetour(detourAt, []arch.Insn{i}, a.CountBody(cellsAt, pick(rnd, 1, nCells), dead, true))
	if err != nil {
		return what, err
	}
	if dead.Flags && i.Flow == arch.FlowCond {
		return "", nil
	}
	c.put(d.Addr, d.Code)
	native, sig, undo := c.stepUndoably(r)
	word := c.get(r.SP()-8, 8)
	undo()
	was := c.counted()
	got, gotSig, err := c.through(d, r, dead)
	if err != nil {
		return what, fmt.Errorf("% x %s: %w", i.Bytes, a.Disassemble(i), err)
	}
	if dead.Flags {
		got.Eflags = native.Eflags
	}
	if got != native || gotSig != sig || c.counted() != was+1 || sig == unix.SIGTRAP && !bytes.Equal(word, c.get(r.SP()-8, 8)) {
		return what, fmt.Errorf("% x %s: %v, %v, counted %d\nin place %+x\ndetour   %+x\n% x\n% x", i.Bytes, a.Disassemble(i), sig, gotSig, c.counted()-was, native, got, word, c.get(r.SP()-8, 8))
	}
	undo()
	if sig != unix.SIGTRAP {
		what += " fault"
	}
	return what, nil
}

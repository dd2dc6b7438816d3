//go:build linux && amd64

package oracle_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// testCase is one instruction, or a few in a row, and the state that they start from.
type testCase struct {
	seed  uint64
	n     int
	kind  string // of the first instruction
	at    arch.Addr
	insns []arch.Insn
	tail  []byte // code behind them; int3 follows
	in    input
	disp  int // where a ModRM displacement is in the bytes being made
	patch []word
}

const (
	codeEnd = codeAt + batch*stride
	page    = 4096
	maxInsn = 15
	maxSize = 60 // of a case's code: what lies behind belongs to the next one's jumps
)

// newCase makes case n of a seed.
func newCase(h *shared, seed uint64, n int) *testCase {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	for try := 0; ; try++ {
		c := &testCase{seed: seed, n: n, at: place(r, n%batch)}
		randomRegs(r, &c.in)
		randomXSave(r, h, &c.in.XSave)
		if !c.settle(r, c.first(r, try)) || n%batch == batch-1 && c.end() != codeEnd {
			continue
		}
		for i := range r.IntN(5) - 1 { // mostly none
			c.follow(r, i)
		}
		c.finish(r)
		return c
	}
}

// place is where a case's code begins: now and then it crosses a page, and the last
// one of a batch ends where the code's mapping does.
func place(r *rand.Rand, n int) arch.Addr {
	at := caseAt(n)
	switch {
	case n == batch-1:
		return codeEnd - 1 - arch.Addr(r.IntN(maxInsn))
	case n*stride%page == page-stride && one(r, 2):
		return at - at%page + page - 1 - arch.Addr(r.IntN(8))
	}
	return at
}

// end is where the next instruction goes.
func (c *testCase) end() arch.Addr {
	if len(c.insns) == 0 {
		return c.at
	}
	return c.insns[len(c.insns)-1].End()
}

// first makes the first instruction's code. The cases of one kind are spread evenly;
// the others go through all opcodes, and on to random ones if that is none.
func (c *testCase) first(r *rand.Rand, try int) []byte {
	slot := c.n * 37 % 64
	for _, k := range kinds {
		if slot -= k.weight; slot < 0 {
			c.kind = k.name
			return k.make(r, c)
		}
	}
	c.kind = "any"
	n := c.n/64*others + slot + int(c.seed%encodings)*1009
	if try > 64 {
		n = r.IntN(encodings)
	}
	return anyOpcode(r, c, n%encodings)
}

// follow appends an instruction, if one can be found soon.
func (c *testCase) follow(r *rand.Rand, i int) {
	last := c.insns[len(c.insns)-1]
	if c.n%batch == batch-1 || last.Flow == arch.FlowSyscall || unsteady(last) || c.end()+maxInsn > c.at+maxSize {
		return
	}
	for range 8 {
		b := anyOpcode(r, c, r.IntN(encodings))
		if one(r, 2) {
			b = kinds[r.IntN(len(kinds))].make(r, c)
		}
		n := len(c.insns)
		if !c.settle(r, b) {
			continue
		}
		if next := c.insns[n]; next.Flow != arch.FlowSyscall && !unsteady(next) {
			return
		}
		c.insns = c.insns[:n]
	}
}

// finish completes the state for the code that it has become.
func (c *testCase) finish(r *rand.Rand) {
	first := c.insns[0]
	if first.Flow == arch.FlowSyscall {
		c.in.Reg[rax] = harmless(r, first.Bytes)
	}
	if one(r, 8) && c.n%batch != batch-1 {
		c.tail = []byte{0x90} // a trap that comes late finds it
	}
	c.in.RIP = uint64(c.at)
	c.in.Signals = 1
	if one(r, 6) || c.in.RFlags&flagTF != 0 && one(r, 2) {
		c.in.Signals += 1 + uint64(r.IntN(nBefore))
	}
	for _, p := range c.patch {
		if inAreas(p.At) && c.in.NPatches < nPatches {
			c.in.Patch[c.in.NPatches] = p
			c.in.NPatches++
		}
	}
}

// code is all bytes of the case.
func (c *testCase) code() []byte {
	var b []byte
	for _, i := range c.insns {
		b = append(b, i.Bytes...)
	}
	return append(b, c.tail...)
}

// String is the line that reproduces the case.
func (c *testCase) String() string {
	s := fmt.Sprintf("-seed %d -case %d: %s:", c.seed, c.n, c.kind)
	for _, i := range c.insns {
		s += fmt.Sprintf(" % x: %s:", i.Bytes, amd64.Arch{}.Disassemble(i))
	}
	return s[:len(s)-1]
}

// text is the disassembly.
func (c *testCase) text() string {
	var all []string
	for _, i := range c.insns {
		all = append(all, amd64.Arch{}.Disassemble(i))
	}
	return strings.Join(all, "; ")
}

// poke gives the case a word of memory of its own.
func (c *testCase) poke(at, v uint64) { c.patch = append(c.patch, word{at, v}) }

// inAreas tells that the word at a can be written.
func inAreas(a uint64) bool {
	for _, area := range []uint64{dataAt, data2At, stackAt} {
		if a >= area && a <= area+areaSize-8 {
			return true
		}
	}
	return false
}

func decode(b []byte, at arch.Addr) (arch.Insn, error) {
	return amd64.Arch{}.Decode(bytes.Clone(b), at)
}

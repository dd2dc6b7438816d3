//go:build linux && amd64

package oracle_test

import (
	"math/rand/v2"

	"github.com/gokprobe/gokprobe/arch"
)

// newCase makes case n of a seed.
func newCase(h *shared, seed uint64, n int) *testCase {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	at := caseAt(n % batch)
	for try := 0; ; try++ {
		c := &testCase{seed: seed, n: n, at: at}
		randomRegs(r, &c.in)
		randomXSave(r, h, &c.in.XSave)
		if c.settle(r, c.bytes(r, try)) {
			c.finish(r)
			return c
		}
	}
}

// bytes makes the instruction's code. The cases of one kind are spread evenly; the
// others go through all opcodes, and on to random ones if that is none.
func (c *testCase) bytes(r *rand.Rand, try int) []byte {
	slot := c.n * 37 % 64
	for _, k := range kinds {
		if slot -= k.weight; slot < 0 {
			c.kind = k.name
			return k.make(r, c)
		}
	}
	c.kind = "any"
	n := c.n/64*32 + slot + int(c.seed%encodings)*1009
	if try > 64 {
		n = r.IntN(encodings)
	}
	return anyOpcode(r, c, n%encodings)
}

// finish completes the state for the instruction that it has become.
func (c *testCase) finish(r *rand.Rand) {
	if c.insn.Flow == arch.FlowSyscall {
		c.in.Reg[rax] = harmless(r, c.insn.Bytes)
	}
	if one(r, 8) {
		c.tail = []byte{0x90} // a trap that comes late finds it
	}
	c.in.RIP = uint64(c.at)
	c.in.Enabled = 1
	for _, p := range c.patch {
		if inAreas(p.At) && c.in.NPatches < nPatches {
			c.in.Patch[c.in.NPatches] = p
			c.in.NPatches++
		}
	}
}

// inAreas tells that the word at a can be written.
func inAreas(a uint64) bool {
	for _, area := range []uint64{dataAt, data2At, stackAt} {
		if a >= area && a <= area+areaSize-8 {
			return true
		}
	}
	return false
}

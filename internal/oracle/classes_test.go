//go:build linux && amd64

package oracle_test

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// kinds makes instructions of one class each; weight is how many of 64 cases it
// gets. The rest of the cases goes through all opcodes of all maps.
var kinds = []struct {
	name   string
	weight int
	make   func(r *rand.Rand, c *testCase) []byte
}{
	{"branch", 5, branch},
	{"far", 3, far},
	{"stack", 5, stackOp},
	{"string", 3, stringOp},
	{"x87", 3, x87},
	{"fpstate", 2, fpState},
	{"lock", 2, locked},
	{"system", 1, system},
	{"misc", 4, misc},
	{"vector", 5, vector},
	{"shadow", 1, shadow},
}

// others is how many of 64 cases are of no kind.
var others = func() int {
	n := 64
	for _, k := range kinds {
		n -= k.weight
	}
	return n
}()

// branch is a near branch of any kind.
func branch(r *rand.Rand, c *testCase) []byte {
	var b []byte
	for range r.IntN(3) {
		b = append(b, pick[byte](r, 0x2e, 0x3e, 0x36, 0x26, 0x64, 0x65, 0x67, 0xf2, 0xf3))
	}
	switch r.IntN(8) {
	case 0:
		b = append(b, 0x66)
		if one(r, 2) {
			b = append(b, rex(r)|8)
		}
	case 1, 2, 3:
		b = append(b, rex(r))
	}
	rel := binary.LittleEndian.AppendUint32(nil, r.Uint32())
	switch r.IntN(10) {
	case 0, 1:
		return append(append(b, byte(0x70|r.IntN(16))), rel...)
	case 2:
		return append(append(b, 0x0f, byte(0x80|r.IntN(16))), rel...)
	case 3:
		return append(append(b, pick[byte](r, 0xe8, 0xe9, 0xeb)), rel...)
	case 4:
		return append(append(b, byte(0xe0|r.IntN(4))), rel...)
	case 5:
		c.poke(c.in.Reg[rsp], target(r))
		return append(b, 0xc3)
	case 6:
		c.poke(c.in.Reg[rsp], target(r))
		return append(b, 0xc2, byte(r.IntN(64)), byte(r.IntN(2)))
	}
	if digit := pick[byte](r, 2, 4); one(r, 2) {
		reg := r.IntN(8)
		if one(r, 2) {
			c.in.Reg[sixteen(b, reg)] = target(r)
		}
		return append(b, 0xff, 0xc0|digit<<3|byte(reg))
	} else if one(r, 2) {
		at := dataPointer(r)
		c.poke(at, target(r))
		return append(append(b, 0xff), absolute(digit, at)...)
	} else {
		return group(r, c, append(b, 0xff), digit)
	}
}

// byNumber is the index in input.Reg of each register in the processor's order.
var byNumber = [16]int{rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15}

// sixteen is register reg of ModRM.rm behind the prefixes b.
func sixteen(b []byte, reg int) int {
	if n := len(b); n > 0 && b[n-1]&0xf1 == 0x41 {
		reg += 8
	}
	return byNumber[reg]
}

// far is a transfer that loads cs, mostly with a frame that the processor accepts.
func far(r *rand.Rand, c *testCase) []byte {
	var b []byte
	size := uint64(4)
	switch r.IntN(4) {
	case 0:
		b, size = append(b, 0x66), 2
	case 1, 2:
		b, size = append(b, 0x48), 8
	}
	cs := func() uint64 {
		return pick[uint64](r, 0x33, 0x33, 0x33, 0x33, 0x23, 0x2b, 0x10, 0, 3, 0x30, uint64(r.IntN(0x10000)))
	}
	if one(r, 3) {
		at := dataPointer(r)
		n := size
		if n == 8 && one(r, 2) {
			n = 4 // AMD has no 64-bit offset here
		}
		c.pokeBytes(at, n, landing(r))
		c.pokeBytes(at+n, 2, cs())
		return append(append(b, 0xff), absolute(pick[byte](r, 3, 5), at)...)
	}
	frame := []uint64{landing(r), cs()}
	op := []byte{pick[byte](r, 0xca, 0xcb, 0xcf, 0xcf)}
	switch op[0] {
	case 0xca:
		op = append(op, byte(r.IntN(64)), 0)
	case 0xcf:
		flags := flagFixed | r.Uint64()&(arithmeticFlags|flagAC)
		if one(r, 4) {
			flags = r.Uint64() & 0x3fffff // NT, IOPL, VM and all
		}
		frame = append(frame, flags, stackAt+0x1000+uint64(r.IntN(0x800)),
			pick[uint64](r, 0x2b, 0x2b, 0x2b, 0x23, 0, 3, uint64(r.IntN(0x10000))))
	}
	for i, v := range frame {
		c.pokeBytes(c.in.Reg[rsp]+uint64(i)*size, size, v)
	}
	return append(b, op...)
}

// pokeBytes gives the case n bytes of memory of its own.
func (c *testCase) pokeBytes(at, n, v uint64) {
	mask := ^uint64(0)
	if n < 8 {
		mask = 1<<(8*n) - 1
	}
	for i, p := range c.patch {
		if p.At <= at && at+n <= p.At+8 { // a neighbour in the same word
			shift := 8 * (at - p.At)
			c.patch[i].Value = p.Value&^(mask<<shift) | v&mask<<shift
			return
		}
	}
	c.poke(at, v&mask)
}

// stackOp pushes or pops.
func stackOp(r *rand.Rand, c *testCase) []byte {
	var b []byte
	switch r.IntN(6) {
	case 0:
		b = append(b, 0x66)
	case 1:
		b = append(b, rex(r))
	case 2:
		b = append(b, 0x66, rex(r))
	}
	sp := c.in.Reg[rsp]
	switch r.IntN(12) {
	case 0:
		return append(b, byte(0x50|r.IntN(8)))
	case 1:
		return append(b, byte(0x58|r.IntN(8)))
	case 2:
		return append(b, 0x6a, byte(r.Uint32()))
	case 3:
		return append(b, 0x68, 1, 2, 3, byte(r.Uint32()))
	case 4:
		return group(r, c, append(b, 0xff), 6)
	case 5:
		return group(r, c, append(b, 0x8f), 0)
	case 6:
		return append(b, 0x9c)
	case 7, 8: // popf, also of TF, NT, ID and IOPL
		c.poke(sp, flagFixed|r.Uint64()&(arithmeticFlags|flagTF|flagAC|1<<21|0x7000))
		return append(b, 0x9d)
	case 9:
		if one(r, 2) {
			c.in.Reg[rbp] = stackAt + 0x1000 + uint64(r.IntN(0x100))*8
		}
		return append(b, 0xc8, byte(r.IntN(256)), byte(r.IntN(2)), byte(r.IntN(4)*r.IntN(12)))
	case 10:
		c.in.Reg[rbp] = areaPointer(r, stackAt)
		return append(b, 0xc9)
	}
	// Not 1 to 3: the kernel makes these null selectors 0 at a context switch.
	c.poke(sp, pick[uint64](r, 0, 0x2b, 0x33, 0x53, 4+uint64(r.IntN(0xfff0))))
	return append(b, 0x0f, pick[byte](r, 0xa0, 0xa1, 0xa8, 0xa9)) // push and pop of fs, gs
}

// stringOp is movs, cmps, stos, lods, scas, or ins and outs, which are refused to a
// program.
func stringOp(r *rand.Rand, _ *testCase) []byte {
	var b []byte
	for range r.IntN(3) {
		b = append(b, pick[byte](r, 0x66, 0x67, 0x64, 0x65, 0x2e))
	}
	if !one(r, 4) {
		b = append(b, pick[byte](r, 0xf2, 0xf3))
	}
	if one(r, 3) {
		b = append(b, rex(r))
	}
	return append(b, pick[byte](r, 0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, 0xa4, 0xa5, 0xaa, 0x6c, 0x6e))
}

func x87(r *rand.Rand, c *testCase) []byte {
	if one(r, 20) {
		return []byte{0x9b} // fwait
	}
	return operands(r, c, append(legacyPrefixes(r), byte(0xd8|r.IntN(8))))
}

// fpState stores and loads x87 and vector state as a whole.
func fpState(r *rand.Rand, c *testCase) []byte {
	var b []byte
	if one(r, 2) {
		b = append(b, 0x48)
	}
	if one(r, 2) {
		c.in.Reg[rdx], c.in.Reg[rax] = 0, uint64(r.IntN(256))
	}
	reg, at := byte(r.IntN(7)), uint64(xImageAt)
	if reg < 2 {
		at = fxImageAt
	}
	if one(r, 8) {
		at = dataPointer(r)
	}
	switch r.IntN(6) {
	case 0:
		return append(b, append([]byte{0xd9}, absolute(pick[byte](r, 4, 6), dataPointer(r))...)...)
	case 1:
		return append(b, append([]byte{0xdd}, absolute(pick[byte](r, 4, 6), dataPointer(r))...)...)
	case 2:
		return append(b, append([]byte{0x0f, 0xc7}, absolute(4, at)...)...) // xsavec
	}
	return append(b, append([]byte{0x0f, 0xae}, absolute(reg, at)...)...)
}

// locked is a read-modify-write with a lock prefix, which not all of these take.
func locked(r *rand.Rand, c *testCase) []byte {
	b := []byte{0xf0}
	if one(r, 4) {
		b = append(b, pick[byte](r, 0xf2, 0xf3, 0x66, 0x64)) // xacquire, xrelease
	}
	if one(r, 2) {
		b = append(b, rex(r))
	}
	switch r.IntN(6) {
	case 0:
		return group(r, c, append(b, byte(r.IntN(7))<<3|byte(r.IntN(2))), byte(r.IntN(8)))
	case 1:
		return group(r, c, append(b, pick[byte](r, 0x80, 0x81, 0x83, 0x86, 0x87, 0xfe)), byte(r.IntN(7)))
	case 2:
		return group(r, c, append(b, pick[byte](r, 0xf6, 0xf7, 0xff)), byte(r.IntN(4)))
	case 3:
		return group(r, c, append(b, 0x0f, pick[byte](r, 0xab, 0xb3, 0xbb)), byte(r.IntN(8)))
	case 4:
		return group(r, c, append(b, 0x0f, 0xba), 4+byte(r.IntN(4)))
	}
	return group(r, c, append(b, 0x0f, pick[byte](r, 0xb0, 0xb1, 0xc0, 0xc1, 0xc7)), byte(r.IntN(2)))
}

// system is a system-call instruction.
func system(r *rand.Rand, _ *testCase) []byte {
	return pick(r, []byte{0x0f, 0x05}, []byte{0x0f, 0x05}, []byte{0xcd, 0x80}, []byte{0x0f, 0x34},
		[]byte{0x48, 0x0f, 0x05}, []byte{0xf3, 0x0f, 0x05}, []byte{0x67, 0xcd, 0x80})
}

// harmless is a system call that says the same to all harnesses, of the 64-bit or
// the 32-bit table.
func harmless(r *rand.Rand, b []byte) uint64 {
	if b[len(b)-1] == 5 {
		return pick(r, uint64(24), 102, 107, 111, 5000, ^uint64(0), 1<<32|102)
	}
	return pick(r, uint64(24), 65, 158, 199, 5000, ^uint64(0))
}

// shadow loads ss, which holds back traps until the next instruction is done.
func shadow(r *rand.Rand, c *testCase) []byte {
	if one(r, 2) {
		c.in.RFlags |= flagTF
	}
	ss := pick[uint64](r, 0x2b, 0x2b, 0x2b, 0x2b, 0x23, 3, 0x33)
	if one(r, 3) {
		at := dataPointer(r)
		c.pokeBytes(at, 2, ss)
		return append([]byte{0x8e}, absolute(2, at)...)
	}
	reg := pick(r, 0, 1, 2, 3, 6, 7)
	c.in.Reg[byNumber[reg]] = ss
	return []byte{0x8e, 0xd0 | byte(reg)}
}

// single instructions that no other kind is sure to meet.
var singles = strings.Fields(`f30f1efa f30f1efb 0f0b 0fb9c0 0fffc0 f4 fa fb e4ff e610 ec ed ee ef 6d 6f 0fa2 0f31 0f01f9 f30fc7f8 f3480fc7ff
	0f01d0 0f01d1 0fc7f0 480fc7f7 0f33 c7f80000000000 c6f842 0f01d5 0f01d6 f30faec3 f3480faecb f3480faed1 f3480faeda 8ed0 8ed8 8ec0
	8ee0 8ee8 488ed3 8ed1 8cd0 8cd8 8ce0 8ceb 488cc8 0f00c0 0f00c8 0f01c8 0f01e0 0f00042500100041 0f01042500100041 0f02c3 0f03c3
	0f00e0 0f00e8 cd03 cd04 cd01 cd20 cdff f1 9b dbe3 0f77 c5f877 c5fc77 0fae2d00000000 0faef8 0faee8 0faef0 f390 90 6690 0f1f440000
	d7 98 4898 99 4899 9e 9f f8 f9 f5 fc fd 0fc8 480fcb 660f50c1 0f01fc 0f01fa 0f01fb 0f01fd 0f01d9 0f01c1 0f01ca 0f01cb 0f01f8 0f06 0f08
	0f09 0f20c0 0f23c0 0f30 0f32 0f35 0f07 0faa 480f38f6c3 f30f38f6c3 f30f01ee f30f01ef f3480f1ec8 f20f38f1c1 660f38f6c1 0f05ff`)

func misc(r *rand.Rand, c *testCase) []byte {
	b, err := hex.DecodeString(pick(r, singles...))
	if err != nil {
		return nil
	}
	if one(r, 4) {
		for _, i := range []int{rax, rbx, rcx} {
			c.in.Reg[i] = pick[uint64](r, 0, 1, 2, 7, 13, 0x2b, 0x33, 0x53, 0x7b, 0x80000000)
		}
	}
	if one(r, 4) {
		c.in.RFlags |= flagTF // some of these are performed by the kernel, which does not trap
	}
	c.disp = len(b) - 4
	return append(b, make([]byte, 4)...)
}

// vector is an SSE, AVX or AVX-512 instruction of an opcode that exists in most of
// the encodings.
func vector(r *rand.Rand, c *testCase) []byte {
	ops := [][]byte{nil,
		[]byte("\x10\x11\x12\x14\x15\x16\x28\x29\x2a\x2b\x2d\x2e\x51\x54\x57\x58\x59\x5a\x5b\x5c\x5d\x5e\x5f\x60\x61\x6a\x6e\x6f\x70\x7e\x7f\xc2\xc6\xd4\xd6\xe6\xe7\xef\xf0\xfa\xfe"),
		[]byte("\x00\x04\x0b\x13\x16\x18\x1c\x1e\x20\x28\x2a\x36\x37\x39\x3d\x40\x47\x50\x58\x62\x63\x64\x76\x7e\x88\x89\x8a\x8b\x90\x91\x92\x93\x98\xa0\xa2\xa8\xb8\xc4\xcf\xdc\xdd\xf3\xf5\xf7"),
		[]byte("\x00\x03\x05\x08\x0a\x0b\x0f\x14\x16\x1d\x1e\x1f\x20\x22\x23\x25\x42\x44\x50\x54\x55\x62\x66\x71\xce\xf0"),
	}
	m := byte(1 + r.IntN(3))
	op := pick(r, ops[m]...)
	switch r.IntN(3) {
	case 0:
		b := append(legacyPrefixes(r), 0x0f)
		if m > 1 {
			b = append(b, 0x34+2*m)
		}
		return operands(r, c, append(b, op))
	case 1:
		return operands(r, c, append(vex(r, m), op))
	}
	return operands(r, c, append(evex(r, m), op))
}

// forbidden tells what would change more than a case's state.
func forbidden(insn arch.Insn) bool {
	b := insn.Bytes
	for len(b) > 2 && (b[0]&0xf0 == 0x40 || strings.IndexByte("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3", b[0]) >= 0) {
		b = b[1:]
	}
	switch {
	case len(b) < 3 || b[0] != 0x0f:
		return false
	case b[1] == 0x01 && b[2] == 0xef: // wrpkru: our own memory's key
		return true
	case b[1] == 0xae && b[2]>>3 == 0x1e: // umwait, tpause: they take their time
		return len(insn.Bytes) > len(b)
	}
	return false
}

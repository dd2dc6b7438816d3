package jit

import (
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// xreg is a general register by its number in the encoding (SDM vol. 2A §3.1.1.1).
type xreg uint8

// Registers that the machine uses for something of its own, or that are preferred.
const (
	ax xreg = amd64.AX
	cx xreg = amd64.CX
	dx xreg = amd64.DX
	bx xreg = amd64.BX
	sp xreg = amd64.SP
	bp xreg = amd64.BP
	si xreg = amd64.SI
	di xreg = amd64.DI
)

// noX is no register.
const noX xreg = 0xff

// place is what ModRM can name: a register, memory at base+index<<scale+disp, or a
// fixed address that is reached relative to rip.
type place struct {
	direct      bool // the register base
	base, index xreg
	scale       uint8
	disp        int32
	target      arch.Addr // if base is noX
}

func inReg(r xreg) place             { return place{direct: true, base: r, index: noX} }
func inMem(base xreg, d int32) place { return place{base: base, index: noX, disp: d} }
func global(a arch.Addr) place       { return place{base: noX, index: noX, target: a} }
func indexed(base, index xreg) place { return place{base: base, index: index} }
func (o place) scaled(n uint8) place { o.scale = n; return o }
func (o place) plus(d int32) place {
	if o.base == noX {
		o.target = o.target.Add(int64(d))
	} else {
		o.disp += d
	}
	return o
}

// label is a place in the code; mark says where.
type label int

// machine collects machine code that has no address yet.
type machine struct {
	code   []byte
	labels []int // offsets, -1 if not marked yet
	jumps  []jumpRef
	far    map[int]bool // the jumps, by their order, whose target a byte can't reach
	refs   []addrRef
	faults []faultRef
	traps  []int
	chosen []int
}

type jumpRef struct {
	at int // of the displacement
	to label
}

type addrRef struct {
	at, end int // the displacement, and the end of its instruction
	target  arch.Addr
}

type faultRef struct {
	at int
	to label
}

func (m *machine) bytes(b ...byte)  { m.code = append(m.code, b...) }
func (m *machine) newLabel() label  { m.labels = append(m.labels, -1); return label(len(m.labels) - 1) }
func (m *machine) mark(l label)     { m.labels[l] = len(m.code) }
func (m *machine) le32(v uint32)    { m.code = binary.LittleEndian.AppendUint32(m.code, v) }
func (m *machine) mayFault(l label) { m.faults = append(m.faults, faultRef{len(m.code), l}) }

// lock makes the next instruction atomic.
func (m *machine) lock() { m.bytes(0xf0) }

// ins is an instruction on size bytes (1, 2, 4, 8). op is its opcode: one byte, or 0f
// and one. reg is a register or an extension of the opcode.
func (m *machine) ins(size int, op uint16, reg xreg, rm place, imm ...byte) {
	if size == 2 {
		m.bytes(0x66)
	}
	rex := byte(reg>>3&1) << 2
	if size == 8 {
		rex |= 8
	}
	if rm.base != noX {
		rex |= byte(rm.base >> 3 & 1)
	}
	if rm.index != noX {
		rex |= byte(rm.index>>3&1) << 1
	}
	// Without REX the numbers 4 to 7 name ah, ch, dh, bh.
	octet := size == 1 || op == opMovzx8 || op == opMovsx8
	if rex != 0 || octet && rm.direct && rm.base >= 4 || size == 1 && reg >= 4 {
		m.bytes(0x40 | rex)
	}
	if op > 0xff {
		m.bytes(byte(op >> 8))
	}
	m.bytes(byte(op))
	m.modrm(reg, rm, len(imm))
	m.bytes(imm...)
}

// modrm is ModRM, SIB and displacement (SDM vol. 2A §2.1.3, tables 2-2 and 2-3).
func (m *machine) modrm(reg xreg, rm place, immLen int) {
	r := byte(reg&7) << 3
	switch {
	case rm.direct:
		m.bytes(0xc0 | r | byte(rm.base&7))
		return
	case rm.base == noX:
		m.bytes(5 | r)
		m.refs = append(m.refs, addrRef{len(m.code), len(m.code) + 4 + immLen, rm.target})
		m.le32(0)
		return
	}
	mod, low := byte(0x80), byte(rm.base&7)
	switch {
	case rm.disp == 0 && low != 5: // 5 without displacement is rip or nothing
		mod = 0
	case rm.disp == int32(int8(rm.disp)):
		mod = 0x40
	}
	switch {
	case rm.index != noX:
		m.bytes(mod|r|4, rm.scale<<6|byte(rm.index&7)<<3|low)
	case low == 4:
		m.bytes(mod|r|4, 0x24)
	default:
		m.bytes(mod | r | low)
	}
	switch mod {
	case 0x40:
		m.bytes(byte(rm.disp))
	case 0x80:
		m.le32(uint32(rm.disp))
	}
}

func (m *machine) move(dst, src xreg) {
	if dst != src {
		m.ins(8, 0x8b, dst, inReg(src))
	}
}

const (
	opMovzx8  = 0x0fb6
	opMovzx16 = 0x0fb7
	opMovsx8  = 0x0fbe
	opMovsx16 = 0x0fbf
	opMovsx32 = 0x63
)

// load is a zero-extending load of size bytes.
func (m *machine) load(size int, dst xreg, src place) {
	switch size {
	case 1:
		m.ins(4, opMovzx8, dst, src)
	case 2:
		m.ins(4, opMovzx16, dst, src)
	default:
		m.ins(size, 0x8b, dst, src)
	}
}

// loadSigned extends size bytes, 1, 2 or 4, to to bytes, 4 or 8.
func (m *machine) loadSigned(size, to int, dst xreg, src place) {
	switch {
	case size == 1:
		m.ins(to, opMovsx8, dst, src)
	case size == 2:
		m.ins(to, opMovsx16, dst, src)
	case to == 4:
		m.ins(4, 0x8b, dst, src)
	default:
		m.ins(8, opMovsx32, dst, src)
	}
}

func (m *machine) store(size int, dst place, src xreg) {
	if size == 1 {
		m.ins(1, 0x88, src, dst)
		return
	}
	m.ins(size, 0x89, src, dst)
}

// storeImm stores the low size bytes of v, which must be a sign-extended 32-bit value if
// size is 8.
func (m *machine) storeImm(size int, dst place, v int32) {
	imm := binary.LittleEndian.AppendUint32(nil, uint32(v))
	if size == 1 {
		m.ins(1, 0xc6, 0, dst, imm[0])
		return
	}
	m.ins(size, 0xc7, 0, dst, imm[:min(size, 4)]...)
}

// constant leaves flags as they are.
func (m *machine) constant(dst xreg, v int64) {
	switch {
	case v == int64(uint32(v)):
		if dst >= 8 {
			m.bytes(0x41)
		}
		m.bytes(0xb8 | byte(dst&7))
		m.le32(uint32(v))
	case v == int64(int32(v)):
		m.ins(8, 0xc7, 0, inReg(dst), binary.LittleEndian.AppendUint32(nil, uint32(v))...)
	default:
		m.bytes(0x48|byte(dst>>3), 0xb8|byte(dst&7))
		m.code = binary.LittleEndian.AppendUint64(m.code, uint64(v))
	}
}

func (m *machine) lea(dst xreg, src place) { m.ins(8, 0x8d, dst, src) }

// The eight operations that share an encoding, by their number in it.
const (
	opAdd xreg = 0
	opOr  xreg = 1
	opAnd xreg = 4
	opSub xreg = 5
	opXor xreg = 6
	opCmp xreg = 7
)

// alu is dst op= src.
func (m *machine) alu(size int, op xreg, dst place, src xreg) {
	m.ins(size, uint16(op)<<3|1, src, dst)
}

// aluFrom is dst op= src in memory.
func (m *machine) aluFrom(size int, op xreg, dst xreg, src place) {
	m.ins(size, uint16(op)<<3|3, dst, src)
}

func (m *machine) aluImm(size int, op xreg, dst place, v int32) {
	if v == int32(int8(v)) {
		m.ins(size, 0x83, op, dst, byte(v))
		return
	}
	m.ins(size, 0x81, op, dst, binary.LittleEndian.AppendUint32(nil, uint32(v))...)
}

func (m *machine) jump(to label)            { m.branch(to, []byte{0xeb}, []byte{0xe9}) }
func (m *machine) jumpIf(cc byte, to label) { m.branch(to, []byte{0x70 | cc}, []byte{0x0f, 0x80 | cc}) }

func (m *machine) branch(to label, short, long []byte) {
	if m.far[len(m.jumps)] {
		m.bytes(long...)
		m.le32(0)
		m.jumps = append(m.jumps, jumpRef{len(m.code) - 4, to})
		return
	}
	m.bytes(append(short, 0)...)
	m.jumps = append(m.jumps, jumpRef{len(m.code) - 1, to})
}

// link fills in the jumps. If some do not reach, it says so, having noted them in far: then
// the code has to be generated again.
func (m *machine) link() bool {
	ok := true
	for i, j := range m.jumps {
		to := m.labels[j.to]
		if m.far[i] {
			binary.LittleEndian.PutUint32(m.code[j.at:], uint32(to-j.at-4))
			continue
		}
		d := to - j.at - 1
		if d != int(int8(d)) {
			m.far[i], ok = true, false
		}
		m.code[j.at] = byte(d)
	}
	return ok
}

// assemble is the code at at; its jumps are linked. With the error, it is as long as it should be.
func (m *machine) assemble(at arch.Addr) (out arch.BodyCode, err error) {
	out.Code = append(out.Code, m.code...)
	for _, r := range m.refs {
		if e := amd64.PutRel32(out.Code[r.at:], r.target, at.Add(int64(r.end))); e != nil {
			err = fmt.Errorf("data at %s of a program at %s: %w", r.target, at, e)
		}
	}
	for _, f := range m.faults {
		out.Stops = append(out.Stops, arch.Stop{At: at.Add(int64(f.at)), Why: arch.StopFault, To: at.Add(int64(m.labels[f.to]))})
	}
	for _, t := range m.traps {
		out.Stops = append(out.Stops, arch.Stop{At: at.Add(int64(t)), Why: arch.StopNoRoom})
	}
	for _, t := range m.chosen {
		out.Stops = append(out.Stops, arch.Stop{At: at.Add(int64(t)), Why: arch.StopChosen})
	}
	return out, err
}

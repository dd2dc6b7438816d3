//go:build linux && amd64

package oracle_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Bits of rflags that a case may start with.
const (
	flagTF          = 1 << 8
	flagRF          = 1 << 16
	flagAC          = 1 << 18
	flagFixed       = 0x202
	arithmeticFlags = 0x8d5 | 1<<10 // CF PF AF ZF SF OF, DF
)

func pick[T any](r *rand.Rand, s ...T) T { return s[r.IntN(len(s))] }

// one is true once in n times.
func one(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// areaPointer names memory that is there, now and then at its very edge.
func areaPointer(r *rand.Rand, area uint64) uint64 {
	switch r.IntN(16) {
	case 0:
		return area + uint64(r.IntN(16))
	case 1:
		return area + areaSize - uint64(r.IntN(80))
	case 2, 3:
		return area + 0x800 + uint64(r.IntN(0x1000))
	}
	return area + 0x800 + uint64(r.IntN(0x40))*64
}

func dataPointer(r *rand.Rand) uint64 { return areaPointer(r, pick[uint64](r, dataAt, data2At)) }

func landing(r *rand.Rand) uint64 { return landAt + 16 + uint64(r.IntN(landSize-32)) }

// wild names no memory.
func wild(r *rand.Rand) uint64 {
	switch r.IntN(5) {
	case 0:
		return farHole + uint64(r.IntN(0x1000000))
	case 1:
		return 1<<47 + r.Uint64N(1<<40) // not canonical
	case 2:
		return ^uint64(0) - uint64(r.IntN(0x10000))
	case 3:
		return reservedAt + uint64(r.IntN(0x1000)) // no access
	}
	return r.Uint64() | 1<<62
}

// target is where an indirect branch may lead.
func target(r *rand.Rand) uint64 {
	switch r.IntN(8) {
	case 0:
		return wild(r)
	case 1:
		return dataPointer(r) // not executable
	}
	return landing(r)
}

// value is what a general register holds. Never the address of a case: it shows its
// breakpoint to whom reads it.
func value(r *rand.Rand) uint64 {
	switch r.IntN(20) {
	case 0:
		return r.Uint64()
	case 1:
		return -uint64(r.IntN(64))
	case 2:
		return wild(r)
	case 3, 4:
		return landing(r)
	case 5, 6, 7, 8, 9:
		return uint64(r.IntN(64))
	}
	return dataPointer(r)
}

func randomRegs(r *rand.Rand, in *input) {
	for i := range in.Reg {
		in.Reg[i] = value(r)
	}
	if !one(r, 3) {
		in.Reg[rcx] = uint64(r.IntN(32))
	}
	if !one(r, 4) {
		in.Reg[rdi], in.Reg[rsi] = dataPointer(r), dataPointer(r)
	}
	in.Reg[rsp] = stackAt + 0x800 + uint64(r.IntN(0x200))*8
	switch r.IntN(24) {
	case 0:
		in.Reg[rsp] = value(r)
	case 1:
		in.Reg[rsp] = stackAt + uint64(r.IntN(16)) // a push leaves the area
	case 2:
		in.Reg[rsp] = stackAt + areaSize - uint64(r.IntN(16)) // a pop does
	case 3:
		in.Reg[rsp] += uint64(r.IntN(8))
	}
	in.RFlags = flagFixed | r.Uint64()&arithmeticFlags
	if one(r, 10) {
		in.RFlags |= flagTF
	}
	if one(r, 24) {
		in.RFlags |= flagAC
	}
}

// randomWord is what memory holds: often an address of use.
func randomWord(r *rand.Rand) uint64 {
	switch r.IntN(8) {
	case 0:
		return target(r)
	case 1:
		return r.Uint64()
	case 2:
		return math.Float64bits(float64(r.IntN(1000)) / 8)
	case 3:
		return uint64(r.IntN(16)) | uint64(r.IntN(16))<<32
	}
	return value(r)
}

// Images that fxrstor and xrstor can load lie at these places of the areas.
const (
	fxImageAt = dataAt + 0x1800
	xImageAt  = data2At + 0x1000
)

// randomMemory fills the areas of one batch.
func randomMemory(r *rand.Rand, h *shared) {
	for a := range h.Memory {
		for i := range h.Memory[a] {
			h.Memory[a][i] = randomWord(r)
		}
	}
	put := func(area, at int, image []byte) {
		for i := 0; i < len(image); i += 8 {
			h.Memory[area][(at+i)/8] = binary.LittleEndian.Uint64(image[i:])
		}
	}
	var image [xsaveMax]byte
	randomXSave(r, h, &image)
	put(0, fxImageAt-dataAt, image[:512])
	randomXSave(r, h, &image)
	put(1, xImageAt-data2At, image[:(h.XSize+7)&^7])
}

// randomXSave fills an image in XSAVE's standard format (SDM vol. 1 §13.4).
func randomXSave(r *rand.Rand, h *shared, p *[xsaveMax]byte) {
	clear(p[:])
	randomX87(r, p[:160])
	mxcsr := uint32(0x1f80)
	if one(r, 3) {
		mxcsr = r.Uint32() & 0xffff
	}
	binary.LittleEndian.PutUint32(p[24:], mxcsr)
	binary.LittleEndian.PutUint32(p[28:], 0xffff)
	randomLanes(r, p[160:416], true)
	for i, f := range h.Feature {
		if i < 2 || h.XFeatures>>i&1 == 0 {
			continue
		}
		randomLanes(r, p[f.Offset:f.Offset+f.Size], i != 5)
		if i == 5 && one(r, 2) { // opmask: all lanes
			for j := range f.Size {
				p[f.Offset+j] = 0xff
			}
		}
	}
	used := h.XFeatures
	if one(r, 6) {
		used &= r.Uint64()
		for _, p := range [][2]int{{1, 2}, {2, 6}, {6, 7}} { // no instruction but xrstor leaves the wider part alone in use
			if used>>p[0]&1 == 0 {
				used &^= 1 << p[1]
			}
		}
	}
	binary.LittleEndian.PutUint64(p[512:], used)
}

// randomX87 fills the first 160 bytes of an FXSAVE image (SDM vol. 1 §10.5.1).
func randomX87(r *rand.Rand, p []byte) {
	fcw, fsw := uint16(0x37f), uint16(r.Uint32())&0x3800
	if one(r, 4) {
		fcw = uint16(r.Uint32())&0x1f3f | 0x40
	}
	if one(r, 3) {
		fsw = uint16(r.Uint32()) & 0x7f7f
		if one(r, 2) {
			fsw &= fcw | 0xffc0 // nothing pending
		}
		if fsw&^fcw&0x3f != 0 {
			fsw |= 0x8080 // ES and B
		}
	}
	binary.LittleEndian.PutUint16(p, fcw)
	binary.LittleEndian.PutUint16(p[2:], fsw)
	p[4] = pick(r, 0xff, 0, byte(r.Uint32()), byte(r.Uint32()))
	binary.LittleEndian.PutUint16(p[6:], uint16(r.IntN(0x800)))
	binary.LittleEndian.PutUint64(p[8:], 0x5500_1234_5678|uint64(r.IntN(256))<<32)
	binary.LittleEndian.PutUint64(p[16:], 0x6600_8765_4321|uint64(r.IntN(256))<<32)
	for i := range 8 {
		st := p[32+16*i:][:10]
		mantissa, exponent := r.Uint64()|1<<63, uint16(0x3fff-8+r.IntN(24))
		switch r.IntN(12) {
		case 0:
			mantissa, exponent = 0, 0
		case 1:
			mantissa, exponent = 1<<63, 0x7fff // infinity
		case 2:
			mantissa, exponent = pick(r, uint64(3), 1)<<62|1, 0x7fff // a NaN
		case 3:
			mantissa, exponent = r.Uint64()>>1, 0 // denormal
		case 4:
			mantissa, exponent = r.Uint64(), uint16(r.Uint32())
		case 5, 6:
			mantissa &= 0xff << 56 // exact
		}
		binary.LittleEndian.PutUint64(st, mantissa)
		binary.LittleEndian.PutUint16(st[8:], exponent|uint16(r.IntN(2))<<15)
	}
}

// randomLanes fills vector registers: floats, small integers, anything.
func randomLanes(r *rand.Rand, p []byte, vector bool) {
	for ; len(p) >= 16 && vector; p = p[16:] {
		kind := r.IntN(8)
		for i := 0; i < 16; i += 4 {
			v := r.Uint32()
			switch kind {
			case 0:
				v = 0
			case 1, 2:
				v = uint32(r.IntN(64))
			case 3, 4:
				v = math.Float32bits(float32(r.IntN(2000)-1000) / 16)
			case 5:
				v = pick[uint32](r, 0x7f800000, 0xffc00000, 0x7f800001, 1, 0x80000000, 0x7f7fffff)
			}
			binary.LittleEndian.PutUint32(p[i:], v)
		}
		if kind == 6 {
			binary.LittleEndian.PutUint64(p, math.Float64bits(float64(r.IntN(2000)-1000)/16))
			binary.LittleEndian.PutUint64(p[8:], math.Float64bits(r.NormFloat64()))
		}
	}
	for i := range p {
		p[i] = byte(r.Uint32())
	}
}

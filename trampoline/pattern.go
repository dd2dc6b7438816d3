package trampoline

import (
	"math"
	"math/bits"

	"github.com/gokprobe/gokprobe/arch"
)

// nextAllowed returns the lowest address at or above at where p's jump may lead.
func nextAllowed(p arch.Pattern, at arch.Addr) (arch.Addr, bool) {
	d := int64(at - p.From)
	switch {
	case d > math.MaxInt32:
		return 0, false
	case d < math.MinInt32:
		d = math.MinInt32
	}
	d, ok := nextDisplacement(p, int32(d))
	target := p.From + arch.Addr(d)
	// Beyond an end of the address space the sum wraps.
	if !ok || d < 0 != (target < p.From) {
		return 0, false
	}
	return target, true
}

// nextDisplacement returns the lowest allowed displacement that is at least d. It is an
// odometer of four digits, each with its own set; the highest one is signed.
func nextDisplacement(p arch.Pattern, d int32) (int64, bool) {
	sets := [4]arch.ByteSet{flipped(p.Byte[3]), p.Byte[2], p.Byte[1], p.Byte[0]}
	u := uint32(d) ^ 1<<31
	digit := [4]int{int(u >> 24), int(u >> 16 & 0xff), int(u >> 8 & 0xff), int(u & 0xff)}
	for k := 0; k < 4; k++ {
		if sets[k].Has(byte(digit[k])) {
			continue
		}
		for ; k >= 0; k-- { // the lowest digit that can be increased
			if v, ok := nextByte(sets[k], digit[k]+1); ok {
				digit[k] = v
				return lowest(sets, digit, k+1)
			}
		}
		return 0, false
	}
	return joined(digit), true
}

// lowest makes the digits from k on as low as their sets permit.
func lowest(sets [4]arch.ByteSet, digit [4]int, k int) (int64, bool) {
	for ; k < 4; k++ {
		v, ok := nextByte(sets[k], 0)
		if !ok {
			return 0, false
		}
		digit[k] = v
	}
	return joined(digit), true
}

func joined(digit [4]int) int64 {
	u := uint32(digit[0])<<24 | uint32(digit[1])<<16 | uint32(digit[2])<<8 | uint32(digit[3])
	return int64(int32(u ^ 1<<31))
}

// flipped is s with the highest bit of all values changed: signed order as unsigned.
func flipped(s arch.ByteSet) arch.ByteSet { return arch.ByteSet{s[2], s[3], s[0], s[1]} }

// nextByte returns the lowest value in s that is at least from.
func nextByte(s arch.ByteSet, from int) (int, bool) {
	for i := from >> 6; i < len(s); i++ {
		w := s[i]
		if i == from>>6 {
			w &= ^uint64(0) << (from & 63)
		}
		if w != 0 {
			return i<<6 + bits.TrailingZeros64(w), true
		}
	}
	return 0, false
}

package amd64

import (
	"encoding/binary"
	"math"

	"github.com/gokprobe/gokprobe/arch"
)

// General registers by their number in the encoding (SDM vol. 2A table 3-1). Those from 8
// on are numbers alone.
const (
	AX = iota
	CX
	DX
	BX
	SP
	BP
	SI
	DI
)

// Condition codes (SDM vol. 1 appendix B.1).
const (
	CondB  = 2
	CondAE = 3
	CondE  = 4
	CondNE = 5
	CondBE = 6
	CondA  = 7
	CondL  = 12
	CondGE = 13
	CondLE = 14
	CondG  = 15
)

// UserCS is the selector of 64-bit code: __USER_CS (arch/x86/include/asm/segment.h).
const UserCS = 0x33

// RedZone is the bytes below rsp that a function may use without moving rsp (System V ABI,
// AMD64 supplement §3.2.2).
const RedZone = 128

// PutRel32 stores the distance to target from next, the end of the instruction.
func PutRel32(dst []byte, target, next arch.Addr) error {
	d := int64(target - next)
	if d < math.MinInt32 || d > math.MaxInt32 {
		return arch.ErrReach
	}
	binary.LittleEndian.PutUint32(dst, uint32(d))
	return nil
}

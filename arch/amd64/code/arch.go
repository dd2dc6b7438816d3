package code

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// Arch is an amd64.Arch that makes code. It has no state and is safe for concurrent use.
type Arch struct{ amd64.Arch }

var _ arch.Code = Arch{}

// Regs is as in package amd64.
type Regs = amd64.Regs

const (
	flagTF     = amd64.FlagTF
	flagZF     = amd64.FlagZF
	arithmetic = amd64.Arithmetic
	userCS     = amd64.UserCS

	noReg = -1

	slack = 1 << 20 // room for a slot page, the function, and an operand a little away
	reach = 2<<30 - slack
)

// Reach is how many bytes a slot may lie from the code it serves: a rel32's
// 2 GiB less 1 MiB of slack. An operand that is itself far from the code can
// still be out of reach; Assemble tells.
func (Arch) Reach() uint64 { return reach }

// SlotSize is 64 bytes: two halves of 32, one for each entrance. The longest
// content of a half is a 15-byte copy and a 5-byte jump.
func (Arch) SlotSize() int { return slotSize }

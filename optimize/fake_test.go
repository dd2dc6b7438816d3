package optimize

import (
	"bytes"
	"errors"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// fake is amd64's detours as far as the policy asks.
type fake struct{ arch.Detours }

var errSyscall = errors.New("a system call")

func (fake) JumpLen() int { return 5 }

func (fake) TrapBytes(breakpointOnly bool) arch.ByteSet {
	if breakpointOnly {
		return arch.Bytes(0xcc)
	}
	return arch.Bytes(0xcc, 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61)
}

func (fake) Displaceable(i arch.Insn) error {
	if i.Flow == arch.FlowSyscall {
		return errSyscall
	}
	return nil
}

const base arch.Addr = 0x401000

// function is code at base, all of it the function's, followed by padding up to base+0x100.
func function(code ...byte) Function {
	return Function{
		Range: arch.Range{Start: base, End: base + arch.Addr(len(code))},
		Code:  append(bytes.Clone(code), bytes.Repeat([]byte{0x90}, 0x100-len(code))...),
		Next:  base + 0x100,
	}
}

func choose(f Function, at arch.Addr) (*Choice, error) {
	an, err := Analyze(amd64.Arch{}, fake{}, f)
	if err != nil {
		return nil, err
	}
	return an.Site(at)
}

package amd64

import "github.com/gokprobe/gokprobe/arch"

// Kind is how a copy of an instruction has to differ from it.
type Kind uint8

const (
	KindPlain        Kind = iota // at most by the displacement of an operand relative to rip
	KindJump                     // direct
	KindCondJump                 // jcc
	KindLoopJump                 // loop, loope, loopne, jrcxz
	KindCall                     // direct
	KindIndirectCall             // near
	KindTransaction              // xbegin
)

var kinds = [...]Kind{
	jump: KindJump, condJump: KindCondJump, loopJump: KindLoopJump, call: KindCall, indirectCall: KindIndirectCall, transaction: KindTransaction,
}

// Parts is what who copies an instruction has to know of its encoding.
type Parts struct {
	Insn arch.Insn
	Kind Kind
	Near bool // a near branch, direct or not
	Cond byte // of KindCondJump

	ModRM, Disp int  // where these begin, if it has them
	Imm, ImmLen int  // where the immediate operand is, or a branch's displacement
	Wraps       bool // of an address relative to rip only 32 bits count

	BySP   bool  // its memory operand's base is rsp
	SPDisp int64 // and this its displacement
}

// PartsOf takes i, which Decode has decoded, to pieces.
func PartsOf(i arch.Insn) (Parts, error) {
	f, err := parse(i.Bytes)
	if err != nil {
		return Parts{}, err
	}
	return f.parts(i, classOf(&f, i.Bytes)), nil
}

func (f *form) parts(i arch.Insn, c class) Parts {
	p := Parts{Insn: i, Near: c.nearBranch(), Cond: f.op & 15, ModRM: f.modrmAt, Disp: f.disp, Imm: f.imm, ImmLen: f.immLen, Wraps: f.addrsize}
	if int(c) < len(kinds) {
		p.Kind = kinds[c]
	}
	if f.hasModRM && !f.register() {
		o := newOperand(f, i)
		p.BySP, p.SPDisp = o.base == SP, o.disp
	}
	return p
}

// Displaced takes i to pieces if it is Displaceable; else the error says why not.
func Displaced(i arch.Insn) (Parts, error) {
	d, err := newDisplaced(i)
	if err != nil {
		return Parts{}, err
	}
	return d.parts(d.insn, d.class), nil
}

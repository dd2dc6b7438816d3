package kprobes

import (
	"bytes"
	"slices"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/patch"
)

// pastJump is all jumps that ever stood at one place, for the copies that forked children
// have.
type pastJump struct {
	original     []byte
	replacements [][]byte
}

// standing is the jump of which something is left in now, nil if there is none. Two of them may differ in one byte, which is a breakpoint in one: that is
// not taken for the other with a breakpoint of somebody's in it. Where somebody has written, the newest is the likeliest.
func (p *pastJump) standing(now []byte) []byte {
	for _, r := range p.replacements {
		if bytes.Equal(r, now) {
			return r
		}
	}
	for _, r := range slices.Backward(p.replacements) {
		if patch.Classify(p.original, r, now, host.Arch.Breakpoint()).Left() {
			return r
		}
	}
	return nil
}

// remember keeps what clean and vanished need to know of a jump after it has gone.
func (opt *optimizer) remember(det *detour) {
	for _, p := range det.Pieces {
		opt.d.past.add(p.Insn.Addr, p.Insn.Bytes)
	}
	past := opt.jumps[det.site.addr]
	if past == nil {
		past = &pastJump{original: det.original}
		opt.jumps[det.site.addr] = past
	}
	if !slices.ContainsFunc(past.replacements, func(r []byte) bool { return slices.Equal(r, det.jump) }) {
		past.replacements = append(past.replacements, det.jump)
		opt.d.past.runs = nil
	}
}

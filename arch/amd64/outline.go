package amd64

import "sync/atomic"

// Whether x86asm knows an instruction, and how long it is, does not depend on the value of its displacement and its immediate. Compiled code
// consists of a few thousand forms, and asking x86asm takes most of the time of decoding. So the forms that were confirmed are remembered by the
// bytes before these two, all of them: the answer is the same, whoever has asked before.

// confirmed has outlines, each at a place that follows from it; 0 is none. A later one may replace another.
var confirmed [1 << 13]atomic.Uint64

// outline is the bytes of f before its displacement and immediate, and their number, as one number; 0 if f is not remembered: its
// encoding has more of these, or is not one of the plain ones.
func (f *form) outline(code []byte) (o uint64) {
	const most = 7
	n := f.imm - f.dispLen
	if n > most || f.space > map0F3A || f.voidREX {
		return 0
	}
	for _, b := range code[:n] {
		o = o<<8 | uint64(b)
	}
	return o | uint64(n)<<56
}

func placeOf(outline uint64) *atomic.Uint64 {
	const spread = 0x9e3779b97f4a7c15
	return &confirmed[outline*spread>>51]
}

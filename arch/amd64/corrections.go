package amd64

// correction is one thing that x86asm does not know, has wrong, or accepts
// though 64-bit mode does not. The length is always parse's.
type correction struct {
	pattern
	name    string // the instruction, in the GNU assembler's spelling; empty if refused
	refused string // why the bytes are no instruction that can run here
	like    []byte // opcode bytes that x86asm prints with the same operands
	source  string // the manual's section
}

var correctionIndex = newIndex(len(corrections), func(i int) *pattern { return &corrections[i].pattern })

// correctionFor is the first row that matches f, or nil.
func correctionFor(f *form) *correction {
	i := correctionIndex[f.space][f.op]
	if i == 0 {
		return nil
	}
	for ; int(i) <= len(corrections); i++ {
		if c := &corrections[i-1]; c.matches(f) {
			return c
		}
	}
	return nil
}

var corrections = []correction{
	{pattern: pattern{space: map0F, lo: 0x1e, pp: ppF3, mod: inRegister, reg: r(7), rm: r(2)}, name: "endbr64", source: "SDM vol. 2A ENDBR64"},
}

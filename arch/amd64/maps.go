package amd64

// space is an opcode map as one encoding reaches it. The same opcode byte means
// different things in each.
type space uint8

const (
	oneByte space = iota
	map0F
	map0F38
	map0F3A
	map3DNow
	vex0F
	vex0F38
	vex0F3A
	vexMap5
	vexMap7
	evex0F
	evex0F38
	evex0F3A
	evexMap5
	evexMap6
	nSpaces
)

// The parts of an instruction behind its opcode byte, one letter for each. The maps
// below are those of SDM vol. 2D appendix A, reduced to this.
const (
	shNone    = '.'
	shModRM   = 'M'
	shImm8    = 'b' // one byte
	shImm16   = 'w' // two
	shImmZ    = 'z' // two with operand size 16, else four
	shImmV    = 'v' // two, four or, with REX.W, eight
	shModB    = 'B' // ModRM and one byte
	shModZ    = 'Z' // ModRM and as shImmZ
	shEnter   = 'e' // two bytes and one
	shMoffs   = 'o' // an address: eight bytes, four with an address-size prefix
	shRel8    = 'j'
	shRel32   = 'J'
	shGroup3  = 'G' // ModRM, and as f6 /0 says one byte
	shGroupZ  = 'H' // ModRM, and as f7 /0 says as shImmZ
	shModD    = 'D' // ModRM and four bytes
	shExtract = 'E' // ModRM and, in extrq and insertq, a byte twice
	shRegs    = 'R' // ModRM that names registers for all values of its mod bits
	shBad     = 'x' // no instruction in 64-bit mode, or a prefix or escape
)

const oneByteMap = "" +
	"MMMMbzxxMMMMbzxx" + // 00
	"MMMMbzxxMMMMbzxx" + // 10
	"MMMMbzxxMMMMbzxx" + // 20
	"MMMMbzxxMMMMbzxx" + // 30
	"xxxxxxxxxxxxxxxx" + // 40
	"................" + // 50
	"xxxMxxxxzZbB...." + // 60
	"jjjjjjjjjjjjjjjj" + // 70
	"BZxBMMMMMMMMMMMM" + // 80
	"..........x....." + // 90
	"oooo....bz......" + // a0
	"bbbbbbbbvvvvvvvv" + // b0
	"BBw.xxBZe.w..bx." + // c0
	"MMMMxxx.MMMMMMMM" + // d0
	"jjjjbbbbJJxj...." + // e0
	"x.xx..GH......MM" //   f0

const map0FMap = "" +
	"MMMMx.....x.xM.B" + // 00
	"MMMMMMMMMMMMMMMM" + // 10
	"RRRRxxxxMMMMMMMM" + // 20
	"......x.xxxxxxxx" + // 30
	"MMMMMMMMMMMMMMMM" + // 40
	"MMMMMMMMMMMMMMMM" + // 50
	"MMMMMMMMMMMMMMMM" + // 60
	"BBBBMMM.EMxxMMMM" + // 70
	"JJJJJJJJJJJJJJJJ" + // 80
	"MMMMMMMMMMMMMMMM" + // 90
	"...MBMMM...MBMMM" + // a0
	"MMMMMMMMMMBMMMMM" + // b0
	"MMBMBBBM........" + // c0
	"MMMMMMMMMMMMMMMM" + // d0
	"MMMMMMMMMMMMMMMM" + // e0
	"MMMMMMMMMMMMMMMM" //   f0

// shapeOf returns the parts that follow opcode op in s. In the maps beyond 0f every
// opcode has a ModRM byte and only the 0f3a map has immediates (SDM vol. 2A §2.3.6,
// §2.7).
func shapeOf(s space, op byte) byte {
	switch s {
	case oneByte:
		return oneByteMap[op]
	case map0F:
		return map0FMap[op]
	case vex0F, evex0F:
		switch {
		case op == 0x77 && s == vex0F: // vzeroupper, vzeroall
			return shNone
		case op >= 0x70 && op <= 0x73, op == 0xc2, op >= 0xc4 && op <= 0xc6:
			return shModB
		}
		return shModRM
	case map0F3A, vex0F3A, evex0F3A:
		return shModB
	case vexMap7:
		return shModD
	}
	return shModRM
}

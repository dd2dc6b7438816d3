package code

import (
	"bytes"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
)

var _ arch.Relays = Arch{}

// relayHead is a relay without its constant:
//
//	+0  ff 25 02 00 00 00   jmp  *2(%rip)
//	+6  0f 0b               ud2, which nobody comes to: it tells a relay from other jumps
//	+8                      the address
var relayHead = []byte{0xff, 0x25, 0x02, 0, 0, 0, 0x0f, 0x0b}

// RelaySize implements arch.Relays.
func (Arch) RelaySize() int { return len(relayHead) + 8 }

// Relay implements arch.Relays.
func (Arch) Relay(to arch.Addr) []byte {
	return binary.LittleEndian.AppendUint64(bytes.Clone(relayHead), uint64(to))
}

// RelayTo implements arch.Relays.
func (a Arch) RelayTo(code []byte) (to arch.Addr, ok bool) {
	if len(code) < a.RelaySize() || !bytes.HasPrefix(code, relayHead) {
		return 0, false
	}
	return arch.Addr(binary.LittleEndian.Uint64(code[len(relayHead):])), true
}

package arch

// Relays is an architecture on which a return address may be replaced by another one that leads to the same place: a relay's.
//
// A relay is one instruction, a jump to a constant that lies behind it. It needs nothing else, changes no register, flag or memory, and works in every
// process that has a copy of it. A breakpoint at it is hit by whoever returns there.
type Relays interface {
	// RelaySize is the bytes that one takes; a page holds a whole number of them.
	RelaySize() int
	// Relay generates one that leads to to. It does not depend on where it lies.
	Relay(to Addr) []byte
	// RelayTo tells where the code of a relay leads; ok is false if it is none.
	RelayTo(code []byte) (to Addr, ok bool)
}

package code

import (
	"sync/atomic"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
)

// The memory of upcalls:
//
//	0           n mailboxes of 256 bytes
//	n*256       looking    u32, not 0 while the tracer looks
//	n*256+4     patience   u32, turns that a thread waits
//
// A mailbox is a Regs, which the thread and the handlers use in place, and
//
//	224         state      u32, an arch.BoxState
//	232         notedAt    u64, the address of the word of the stack that was noted; 0 if none was
//	240         noted      u64, that word
//
// A thread writes the general registers, eflags, rsp, rip and the bases of fs and gs.
// The other fields have the same values in every 64-bit program; the tracer keeps them
// so.
const (
	boxSize     = 256
	boxState    = 224
	boxNotedAt  = 232
	boxNoted    = 240
	boxesMax    = 64
	headerSize  = 64
	lookingAt   = 0
	patienceAt  = 4
	userSS      = 0x2b // __USER_DS
	noSyscall   = ^uint64(0)
	defaultWait = 1024
	maxStreak   = 16
)

// mailboxes implements arch.Mailboxes.
type mailboxes struct {
	at       arch.Addr
	boxes    []mailbox
	looking  *atomic.Uint32
	patience *atomic.Uint32
	last     int // that Poll returned
	streak   int // how often in a row
}

// mailbox implements arch.Mailbox.
type mailbox struct {
	regs  *Regs
	state *atomic.Uint32
	noted *[2]uint64 // notedAt and noted
	// Registers that the thread does not load from the mailbox are compared with their
	// old values.
	eflags, fsBase, gsBase uint64
}

// UpcallSize is the size in bytes of the memory for n mailboxes.
func (Arch) UpcallSize(n int) int { return n*boxSize + headerSize }

// Mailboxes views mem, of at least UpcallSize(n) bytes. It panics if n is not a power of
// two up to 64, or mem is too small.
func (a Arch) Mailboxes(mem []byte, at arch.Addr, n int) arch.Mailboxes {
	if n < 1 || n > boxesMax || n&(n-1) != 0 || len(mem) < a.UpcallSize(n) {
		panic("amd64: bad memory for mailboxes")
	}
	word := func(off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&mem[off])) }
	m := &mailboxes{
		at: at, boxes: make([]mailbox, n),
		looking: word(n*boxSize + lookingAt), patience: word(n*boxSize + patienceAt),
	}
	for i := range m.boxes {
		m.boxes[i] = mailbox{
			regs: (*Regs)(unsafe.Pointer(&mem[i*boxSize])), state: word(i*boxSize + boxState),
			noted: (*[2]uint64)(unsafe.Pointer(&mem[i*boxSize+boxNotedAt])),
		}
		m.boxes[i].Free()
	}
	m.patience.Store(defaultWait)
	return m
}

// Poll looks at the mailbox that was used last before it looks at the others, starting
// behind it: a thread that hits again and again uses the same one. Now and then the others
// come first.
func (m *mailboxes) Poll() arch.Mailbox {
	if b := &m.boxes[m.last]; m.streak < maxStreak && b.posted() && b.Take() {
		m.streak++
		return b
	}
	m.streak = 0
	for i := range m.boxes {
		k := (m.last + 1 + i) & (len(m.boxes) - 1)
		if b := &m.boxes[k]; b.posted() && b.Take() {
			m.last = k
			return b
		}
	}
	return nil
}

// SetLooking is ordered before all that the caller reads afterwards.
func (m *mailboxes) SetLooking(on bool) {
	var v uint32
	if on {
		v = 1
	}
	m.looking.Store(v)
}

func (m *mailboxes) SetPatience(turns uint32) { m.patience.Store(max(turns, 1)) }

func (m *mailboxes) At(a arch.Addr) arch.Mailbox {
	if b := m.box(uint64(a)); b != nil {
		return b
	}
	return nil
}

func (m *mailboxes) box(a uint64) *mailbox {
	off := a - uint64(m.at)
	if off%boxSize != 0 || off/boxSize >= uint64(len(m.boxes)) {
		return nil
	}
	return &m.boxes[off/boxSize]
}

func (b *mailbox) posted() bool { return b.State() == arch.BoxPosted }

func (b *mailbox) State() arch.BoxState { return arch.BoxState(b.state.Load()) }

func (b *mailbox) set(s arch.BoxState) { b.state.Store(uint32(s)) }

func (b *mailbox) Take() bool {
	if !b.state.CompareAndSwap(uint32(arch.BoxPosted), uint32(arch.BoxTaken)) {
		return false
	}
	b.eflags, b.fsBase, b.gsBase = b.regs.Eflags, b.regs.Fs_base, b.regs.Gs_base
	return true
}

func (b *mailbox) Regs() arch.Regs { return b.regs }

func (b *mailbox) Thread() arch.Addr { return arch.Addr(b.regs.Fs_base) }

func (b *mailbox) Noted(at arch.Addr) (word uint64, ok bool) {
	return b.noted[1], at != 0 && b.noted[0] == uint64(at)
}

func (b *mailbox) Decline() { b.set(arch.BoxDeclined) }

func (b *mailbox) Call() { b.set(arch.BoxCalled) }

func (b *mailbox) Answer() {
	if b.loadable() {
		b.set(arch.BoxAnswered)
		return
	}
	b.regs.Rip = 0
	b.set(arch.BoxCalled)
}

// loadable reports whether the thread can load all registers that have changed.
func (b *mailbox) loadable() bool {
	return (b.regs.Eflags^b.eflags)&^arithmetic == 0 && b.regs.Fs_base == b.fsBase && b.regs.Gs_base == b.gsBase && b.usual()
}

// usual tells whether the fields that no thread writes are as ever.
func (b *mailbox) usual() bool {
	r := b.regs
	return r.Cs == userCS && r.Ss == userSS && r.Ds|r.Es|r.Fs|r.Gs == 0 && r.Orig_rax == noSyscall
}

func (b *mailbox) Free() {
	if r := b.regs; !b.usual() {
		r.Cs, r.Ss, r.Ds, r.Es, r.Fs, r.Gs, r.Orig_rax = userCS, userSS, 0, 0, 0, 0, noSyscall
	}
	b.set(arch.BoxFree)
}

var _ arch.Upcalls = Arch{}

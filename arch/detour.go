package arch

import "math/bits"

// An optimized site is reached by a jump instead of a breakpoint. The jump leads to a
// detour: a body that does the probe's work, then copies of the instructions that the
// jump has displaced, then a jump back. (The kernel calls it detour buffer, and the
// displaced instructions the detoured code region, DCR: Documentation/trace/kprobes.rst.)

// ByteSet is a set of byte values.
type ByteSet [4]uint64

// AnyByte has all values.
var AnyByte = ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// Bytes is the set of the given values.
func Bytes(values ...byte) (s ByteSet) {
	for _, v := range values {
		s[v>>6] |= 1 << (v & 63)
	}
	return s
}

// Has reports whether v is in s.
func (s ByteSet) Has(v byte) bool { return s[v>>6]>>(v&63)&1 != 0 }

// Each calls yield for the values in s, in ascending order, until it returns false.
func (s ByteSet) Each(yield func(byte) bool) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			if !yield(byte(i<<6 + bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}

// Pattern says which displacements a jump may have: byte k of the little-endian 32-bit
// displacement must be one of Byte[k]. What the jump writes over the heads of
// instructions is thereby something that traps, or what stood there before.
type Pattern struct {
	From Addr // where the displacement counts from: the end of the jump
	Byte [4]ByteSet
	// Others is what somebody else may put in place of each byte once the jump stands: where an instruction begins, a breakpoint, or what
	// stood there before. The jump then leads to one of Strays.
	Others [4]ByteSet
}

// Strays is where a jump that leads to target leads once somebody else has changed any of its bytes.
func (p Pattern) Strays(target Addr) (all []Addr) {
	d := uint32(target - p.From)
	leads := []uint32{d}
	for k, others := range p.Others {
		if others == (ByteSet{}) {
			continue
		}
		for _, d := range leads[:len(leads):len(leads)] {
			for v := range others.Each {
				if now := d&^(0xff<<(8*k)) | uint32(v)<<(8*k); now != d {
					leads = append(leads, now)
				}
			}
		}
	}
	for _, d := range leads[1:] {
		all = append(all, p.From.Add(int64(int32(d))))
	}
	return all
}

// Allows reports whether the jump may lead to target.
func (p Pattern) Allows(target Addr) bool {
	d := int64(target - p.From)
	if d != int64(int32(d)) {
		return false
	}
	for k := range p.Byte {
		if !p.Byte[k].Has(byte(d >> (8 * k))) {
			return false
		}
	}
	return true
}

// Body is what a detour does before the displaced instructions. It is entered with the
// thread's registers, flags and stack as they are at the site. At its end it falls
// through with all of them unchanged, except for deliberate changes.
type Body interface {
	// Assemble generates the code at at. Its length does not depend on at. The error
	// wraps ErrReach if something is out of reach.
	Assemble(at Addr) (BodyCode, error)
}

// BodyCode is a generated body.
type BodyCode struct {
	Code []byte
	Stops
}

// Stop is an instruction of a detour at which a thread may stop for the tracer: a breakpoint, or one that may fault.
type Stop struct {
	At  Addr
	Why StopReason
	// To is where the thread goes on if there is no tracer, and behind a fault always. The zero value in a body stands for the first copy.
	To Addr
}

// StopReason is why a thread stops in a detour.
type StopReason uint8

const (
	// StopUntaken is a breakpoint of a body that leaves the hit to the tracer. All registers and flags are as at
	// the site, and nothing has happened.
	StopUntaken StopReason = iota
	// StopCall is the same in a body that follows calls: it leaves this one to the tracer.
	StopCall
	// StopNoRoom is the same for a program: the thread's stack has no room for it.
	StopNoRoom
	// StopChosen is a breakpoint for a hit that a program has chosen (program.Program.Decides). All registers and
	// flags are as at the site; the program has run, and nothing behind it. A thread that goes on behind the breakpoint does
	// the rest of the body.
	StopChosen
	// StopWaiting is a breakpoint at which a thread waits for the answer to an upcall. Its registers lie in a mailbox.
	StopWaiting
	// StopAsked is a breakpoint of a tail. All registers are as in front of the system call, but the two that every system
	// call changes. A thread that goes on behind it does what is right without a tracer.
	StopAsked
	// StopFault is an instruction that may fault (an entry of the kernel's extable). At To the rest is done.
	StopFault
	// StopUncounted is the same, but the hit is not counted then.
	StopUncounted
)

// Faults tells whether the stop is a fault, not a breakpoint.
func (w StopReason) Faults() bool { return w == StopFault || w == StopUncounted }

// Stops are all of a detour's, or of a part of it.
type Stops []Stop

// StopAt returns the stop at at.
func (s Stops) StopAt(at Addr) (stop Stop, ok bool) {
	for _, stop := range s {
		if stop.At == at {
			return stop, true
		}
	}
	return Stop{}, false
}

// Piece is the copy of one displaced instruction.
type Piece struct {
	Insn Insn // the original
	At   Addr // where its copy begins; a thread at the original may be sent here
	Len  int  // bytes of the copy, which may be several instructions (a call is)
	// Inner are the places inside the copy where a thread can stand, if it is several.
	Inner []Inner
}

// Inner is a place between the instructions of one copy. All registers are there as in the
// original code at Orig, except that the stack pointer is Pop bytes lower: once it is put
// right, a thread may be sent to Orig or, where that is another one, to Orig's copy.
type Inner struct {
	At, Orig Addr
	Pop      int
}

// Detour is the code that an optimized site jumps to.
//
//	Addr    jmp Body        the switch: its displacement byte is On, Off or Ask
//	        jmp Pieces[0]   reached when the switch is Off
//	Trap    a breakpoint    reached when it is Ask
//	Body    …
//	Pieces  copies
//	Back    jmp End
type Detour struct {
	Addr   Addr // the entry
	Code   []byte
	Switch Addr // one byte: On runs the body, Off goes to the copies at once, Ask to Trap
	On     byte
	Off    byte
	Ask    byte
	Trap   Addr // a breakpoint in place of the body, where all registers are as at the site
	Body   Range
	BodyCode
	Pieces []Piece
	Back   Addr // of the jump back to End
	End    Addr // the address in the original code behind the last displaced instruction
}

// Range is the bytes that the detour occupies.
func (d *Detour) Range() Range { return Range{d.Addr, d.Addr + Addr(len(d.Code))} }

// Written is called when the code lies in the target: it is forgotten, but for its length.
func (d *Detour) Written() { d.Code = written(d.Code) }

// Start is where the displaced instructions' copies begin.
func (d *Detour) Start() Addr { return d.Pieces[0].At }

// Place is where in a detour a thread stands.
type Place uint8

const (
	Outside Place = iota // not in it
	InBody               // before the first copy; registers and stack may not be the program's own
	AtCopy               // in front of the copy of an instruction, or of the jump back: all registers are as in the original code
	InCopy               // between the instructions of one copy
)

// Locate says where ip is. At AtCopy orig is the corresponding address of the original
// code; at InCopy it is that of the instruction whose copy it is in.
func (d *Detour) Locate(ip Addr) (place Place, orig Addr) {
	switch {
	case !d.Range().Contains(ip):
		return Outside, 0
	case ip < d.Start():
		return InBody, d.Pieces[0].Insn.Addr
	case ip == d.Back:
		return AtCopy, d.End
	}
	for _, p := range d.Pieces {
		if ip == p.At {
			return AtCopy, p.Insn.Addr
		}
		if ip > p.At && ip < p.At+Addr(p.Len) {
			return InCopy, p.Insn.Addr
		}
	}
	return Outside, 0
}

// Original translates ip, which is at or in a copy or at the jump back, to the original
// code, and returns how many bytes higher the stack pointer would be there. ok is false
// for any other ip.
func (d *Detour) Original(ip Addr) (orig Addr, pop int, ok bool) {
	place, orig := d.Locate(ip)
	if place != InCopy {
		return orig, 0, place == AtCopy
	}
	for _, p := range d.Pieces {
		for _, in := range p.Inner {
			if in.At == ip {
				return in.Orig, in.Pop, true
			}
		}
	}
	return 0, 0, false
}

// CopyOf is where the copy of the instruction at orig is.
func (d *Detour) CopyOf(orig Addr) (Addr, bool) {
	for _, p := range d.Pieces {
		if p.Insn.Addr == orig {
			return p.At, true
		}
	}
	return 0, false
}

// Dead says what a body may change without putting it back, since the code from the site
// on writes it before it reads it. The zero value is nothing.
type Dead struct {
	Flags bool   // all arithmetic flags
	Regs  uint16 // bit n: general register n, in the encoding's order (rax, rcx, rdx, rbx, rsp, …)
}

// Detours is what optimized sites need of an architecture. Implementations are stateless
// and safe for concurrent use.
type Detours interface {
	// JumpLen is the length in bytes of the jump to a detour.
	JumpLen() int
	// Jump is the jump at from to to. It returns ErrReach if that is too far.
	Jump(from, to Addr) ([]byte, error)
	// TrapsBehind returns the bytes that can stand behind the first byte of i and raise
	// a breakpoint's exception, with no other effect, before any byte behind them
	// matters. The exception is told one byte behind that of a breakpoint at i. ok is
	// false if there are none, or i has one byte.
	TrapsBehind(i Insn) (set ByteSet, ok bool)
	// TrapBytes returns the bytes that raise an exception when a thread executes an
	// instruction that begins with them, no matter which bytes follow. They are the
	// breakpoint, and, unless breakpointOnly, the bytes that begin no instruction.
	TrapBytes(breakpointOnly bool) ByteSet

	// Displaceable returns nil if i may run as a copy in a detour, with nobody watching; else
	// an error that says why not.
	Displaceable(i Insn) error
	// Dead finds the registers and flags that are dead in front of the first of insns,
	// which follow each other. It looks no further than the last of them, and assumes
	// that whatever they do not say is needed.
	Dead(insns []Insn) Dead
	// DetourLen is the length in bytes of what AssembleDetour generates anywhere.
	DetourLen(insns []Insn, b Body) (int, error)
	// AssembleDetour generates a detour at at for insns, which follow each other. The
	// error wraps ErrReach if an operand, a target or the way back is out of reach.
	AssembleDetour(at Addr, insns []Insn, b Body) (*Detour, error)

	// CountBody adds one to one of n counters (64 bit, 64 bytes apart, n a power of
	// two) that begin at cells, atomically; threads use different ones where possible.
	// The flags and registers in dead are not put back. redZone is set if the code may
	// keep data in the 128 bytes below its stack pointer.
	CountBody(cells Addr, n int, dead Dead, redZone bool) Body
	// TrapBody calls the tracer by a breakpoint.
	TrapBody() Body
}

package trampoline

import (
	"bytes"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

type slotState uint8

const (
	slotFree slotState = iota
	slotLive
	slotRetired // no longer used, but a thread may be inside
)

// Arena is slots of equal size within reach of one stretch of code, or detours. Finding
// the slot of an instruction pointer takes constant time. Slots that are free hold
// breakpoints, except where none was ever in use.
type Arena struct {
	span  arch.Range // all of the arena's addresses
	code  arch.Range // stub and slots, a multiple of slotSize long
	store Store      // over code, from codeOff on
	data  Store      // nil for a cave
	ext   Extent     // zero for a cave

	codeOff  uint64
	sites    uint64 // offset in data of the sites table
	slotSize uint64
	fill     []byte // breakpoints, one fill step
	stub     arch.Addr
	ground   *ground // of an arena of detours; nil for slots

	state  []slotState // of the slots from code.Start on
	free   []int       // freed ones
	next   int         // the first that was never in use
	filled int         // slots below it were filled once
	live   int         // slots in use or retired
	dirty  int         // retired ones
}

// Range is all of a's addresses.
func (a *Arena) Range() arch.Range { return a.span }

// Code is the addresses of a's stub and slots.
func (a *Arena) Code() arch.Range { return a.code }

// Extent is where a lies in the region. It is zero for a cave.
func (a *Arena) Extent() Extent { return a.ext }

// Cave reports whether a lies in padding of the target's own code.
func (a *Arena) Cave() bool { return a.data == nil }

// Stub is the address of a system-call instruction with a breakpoint behind it,
// for remote calls; ok is false for a cave and for an arena of detours.
func (a *Arena) Stub() (stub arch.Addr, ok bool) { return a.stub, a.slots() }

// slots reports whether a has slots, and is mapped.
func (a *Arena) slots() bool { return a.data != nil && a.ground == nil }

// Contains reports whether ip lies in a's code.
func (a *Arena) Contains(ip arch.Addr) bool { return a.code.Contains(ip) }

// SlotOf returns the address of the slot around ip. ok is false if ip lies in
// none that is in use or retired.
func (a *Arena) SlotOf(ip arch.Addr) (slot arch.Addr, ok bool) {
	if !a.code.Contains(ip) || a.ground != nil {
		return 0, false
	}
	i := uint64(ip-a.code.Start) / a.slotSize
	if a.state[i] == slotFree {
		return 0, false
	}
	return a.addr(int(i)), true
}

// Free slots that Alloc can still give out.
func (a *Arena) room() int { return len(a.state) - a.next + len(a.free) }

func (a *Arena) addr(i int) arch.Addr { return a.code.Start + arch.Addr(uint64(i)*a.slotSize) }

func (a *Arena) offset(i int) uint64 { return a.codeOff + uint64(i)*a.slotSize }

// index returns the number of the slot that starts at addr and is in use.
func (a *Arena) index(addr arch.Addr) (int, error) {
	if slot, ok := a.SlotOf(addr); !ok || slot != addr {
		return 0, fmt.Errorf("address %s: %w", addr, ErrNotAllocated)
	}
	return int(uint64(addr-a.code.Start) / a.slotSize), nil
}

// newArena divides code into slots. The stub uses the first ones. step is the number of
// bytes filled with breakpoints at a time, a multiple of the slot size.
func newArena(a arch.Code, code arch.Range, s Store, codeOff, step uint64) *Arena {
	size := uint64(a.SlotSize())
	n := int(code.Len() / size)
	return &Arena{
		span: code, code: arch.Range{Start: code.Start, End: code.Start + arch.Addr(uint64(n)*size)},
		store: s, codeOff: codeOff, slotSize: size,
		fill:  bytes.Repeat(a.Breakpoint(), int(step)/len(a.Breakpoint())),
		state: make([]slotState, n),
	}
}

// alloc returns a slot that holds breakpoints. There must be room.
func (a *Arena) alloc() (arch.Addr, error) {
	if n := len(a.free); n > 0 {
		i := a.free[n-1]
		a.free = a.free[:n-1]
		a.state[i] = slotLive
		a.live++
		return a.addr(i), nil
	}
	if err := a.fillUpTo(a.next); err != nil {
		return 0, err
	}
	i := a.next
	a.next++
	a.state[i] = slotLive
	a.live++
	return a.addr(i), nil
}

// fillUpTo makes sure that slot i was filled with breakpoints once. It works in
// steps, so that pages which are never used are never touched.
func (a *Arena) fillUpTo(i int) error {
	for a.filled <= i {
		n := min(uint64(len(a.fill)), uint64(len(a.state)-a.filled)*a.slotSize)
		if err := a.store.Write(a.offset(a.filled), a.fill[:n]); err != nil {
			return fmt.Errorf("filling slots at %s: %w", a.addr(a.filled), err)
		}
		a.filled += int(n / a.slotSize)
	}
	return nil
}

// put writes code to the slot i, then notes which site it serves.
func (a *Arena) put(i int, code []byte, site arch.Addr) error {
	if uint64(len(code)) > a.slotSize {
		return fmt.Errorf("slot at %s, %d bytes of code: %w", a.addr(i), len(code), ErrSlotSize)
	}
	if err := a.store.Write(a.offset(i), code); err != nil {
		return fmt.Errorf("writing the slot at %s: %w", a.addr(i), err)
	}
	return a.note(i, site)
}

func (a *Arena) note(i int, site arch.Addr) error {
	if a.Cave() {
		return nil
	}
	if err := a.data.Write(a.sites+8*uint64(i), le.AppendUint64(nil, uint64(site))); err != nil {
		return fmt.Errorf("noting the site of the slot at %s: %w", a.addr(i), err)
	}
	return nil
}

// release fills the slot i with breakpoints and makes it free.
func (a *Arena) release(i int) error {
	if err := a.note(i, 0); err != nil {
		return err
	}
	if err := a.store.Write(a.offset(i), a.fill[:a.slotSize]); err != nil {
		return fmt.Errorf("emptying the slot at %s: %w", a.addr(i), err)
	}
	if a.state[i] == slotRetired {
		a.dirty--
	}
	a.state[i] = slotFree
	a.free = append(a.free, i)
	a.live--
	return nil
}

func (a *Arena) retire(i int) {
	if a.state[i] == slotLive {
		a.state[i] = slotRetired
		a.dirty++
	}
}

// retired calls f for every retired slot.
func (a *Arena) retired(f func(i int)) {
	if a.dirty == 0 {
		return
	}
	for i, s := range a.state[:a.next] {
		if s == slotRetired {
			f(i)
		}
	}
}
